"""The model types that fullstep can size, one entry each, grouped by make."""

from __future__ import annotations

from fullstep.models.architecture import Architecture
from fullstep.models.architectures.deepseek import DEEPSEEK_LIKE
from fullstep.models.architectures.experts import EXPERTS
from fullstep.models.architectures.gemma import GEMMA_LIKE
from fullstep.models.architectures.gpt import GPT_LIKE
from fullstep.models.architectures.gpt_variants import GPT_VARIANTS
from fullstep.models.architectures.llama import LLAMA_LIKE
from fullstep.models.architectures.llama_variants import LLAMA_VARIANTS

_GROUPS = (LLAMA_LIKE, LLAMA_VARIANTS, GEMMA_LIKE, EXPERTS, DEEPSEEK_LIKE, GPT_LIKE, GPT_VARIANTS)
ARCHITECTURES: dict[str, Architecture] = {entry.model_type: entry for group in _GROUPS for entry in group}

TEXT_PARTS: dict[str, str] = {
    "aria": "aria_text",
    "gemma3": "gemma3_text",
    "idefics3": "llama",
    "internvl": "qwen2",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "paligemma": "gemma",
    "pixtral": "mistral",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
    "smolvlm": "llama",
}
"""Models that take more than text, and the model type whose decoder is their language part (transformers 5.23)."""

__all__ = ["ARCHITECTURES", "TEXT_PARTS"]
