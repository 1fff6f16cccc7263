"""What trains under an adapter, against peft on the class of transformers itself, on the meta device.

Needs the extra ``lab``; run by ``pytest -m real_classes``.
"""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.job import complete, worksheet_from_mapping
from fullstep.physics.memory.weights import trainable

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 128}
EXPERTS = {**SIZES, "intermediate_size": 96, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
DEEPSEEK = {
    **SIZES, **LATENT, "num_key_value_heads": 4, "intermediate_size": 96, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_group": 1,
    "topk_group": 1, "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "targets"),
    [
        ({"model_type": "llama", **SIZES, "intermediate_size": 96}, "all-linear"),
        ({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 128}, "all-linear"),
        ({"model_type": "phi3", **SIZES, "intermediate_size": 96, "pad_token_id": 0}, "all-linear"),
        ({"model_type": "mixtral", **SIZES, "intermediate_size": 96, "num_local_experts": 4}, "all-linear"),
        ({"model_type": "mixtral", **SIZES, "intermediate_size": 96, "num_local_experts": 4}, ["q_proj", "w1", "w2", "w3"]),
        ({"model_type": "mixtral", **SIZES, "intermediate_size": 96, "num_local_experts": 4}, ["k_proj", "o_proj"]),
        ({"model_type": "qwen3_moe", **EXPERTS, "head_dim": 16}, "all-linear"),
        ({"model_type": "qwen3_moe", **EXPERTS, "head_dim": 16}, ["q_proj", "gate_proj", "up_proj", "down_proj"]),
        ({"model_type": "olmoe", **SIZES, "intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}, "all-linear"),
        ({"model_type": "deepseek_v2", **DEEPSEEK}, "all-linear"),
        ({"model_type": "deepseek_v3", **DEEPSEEK}, "all-linear"),
        ({"model_type": "qwen2_moe", **EXPERTS, "shared_expert_intermediate_size": 48}, "all-linear"),
        ({"model_type": "granitemoe", **SIZES, "intermediate_size": 32, "num_local_experts": 4}, "all-linear"),
        ({"model_type": "gpt_oss", **SIZES, "intermediate_size": 32, "num_local_experts": 4, "head_dim": 16}, "all-linear"),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else str(value)[:20],
)
def test_low_rank_adapters_have_as_many_elements_as_pefts(config: dict[str, Any], targets: Any) -> None:
    import torch  # noqa: PLC0415
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    with torch.device("meta"):
        real = get_peft_model(AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)), LoraConfig(r=4, target_modules=targets))
    expected = sum(parameter.numel() for parameter in real.parameters() if parameter.requires_grad)
    worksheet = {"model": {"config": config}, "method": {"kind": "lora", "rank": 4, "targets": targets}}
    assert trainable(complete(worksheet_from_mapping(worksheet, "adapters"))).total == expected
