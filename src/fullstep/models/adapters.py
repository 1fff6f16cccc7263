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
