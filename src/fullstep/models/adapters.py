"""Which modules peft gives an adapter when nobody names any.

Source: peft 0.21.2, ``peft/utils/constants.py``, ``TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING``.
"""

from __future__ import annotations

DEFAULT_ADAPTER_TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "opt", "gptj", "gpt_neo", "llama", "llama4", "mistral", "mixtral", "stablelm", "gemma", "gemma2", "gemma3_text", "qwen2",
            "qwen3",
        ),
        ("q_proj", "v_proj"),
    ),
    **dict.fromkeys(("bloom", "gpt_neox", "falcon"), ("query_key_value",)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("c_attn",)),
    "codegen": ("qkv_proj",),
    "mpt": ("Wqkv",),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
}  # fmt: skip

_MIXTRAL = {"gate": "gate.weight", "w1": "experts.gate_up_proj", "w3": "experts.gate_up_proj", "w2": "experts.down_proj"}
_QWEN = {
    "gate": "gate.weight", "gate_proj": "experts.gate_up_proj", "up_proj": "experts.gate_up_proj", "down_proj": "experts.down_proj",
}  # fmt: skip
EXPERT_TARGETS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("mixtral", "minimax_m2"), _MIXTRAL),
    **dict.fromkeys(
        (
            "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5_moe", "exaone_moe", "flex_olmo", "glm4_moe", "hunyuan_v1_moe", "mellum",
            "olmoe", "qwen3_moe",
        ),
        _QWEN,
    ),
}  # fmt: skip
"""Names of modules that became parameters with transformers 5, by model type: peft adapts the parameter in the module's place.
Other types' experts are left alone.

Source: peft 0.21.2, ``peft/utils/transformers_weight_conversion.py``, ``_MOE_TARGET_MODULE_MAPPING``; transformers 5.23,
``conversion_mapping.py``, ``_MODEL_TO_CONVERSION_PATTERN``
"""
