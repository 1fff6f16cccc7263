"""The worksheets on which formulas and trace are compared: architectures x ways of training, as one grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

Table = dict[str, Any]


class GridCase(NamedTuple):
    """One worksheet of the grid."""

    name: str
    """architecture and way, joined by a slash"""
    worksheet: Table


_FLOAT32: Table = {"weights": "float32", "autocast": True}
_SHARDED: Table = {"weights": "float32"}
_CHECKPOINTED: Table = {"activation_checkpointing": "full"}

WAYS: dict[str, Table] = {
    "full": {},
    "full-checkpointed": {"step": _CHECKPOINTED},
    "full-autocast": {"precision": _FLOAT32},
    "full-autocast-checkpointed-2": {"precision": _FLOAT32, "step": _CHECKPOINTED, "batch": {"accumulation": 2}},
    "lora": {"method": {"kind": "lora"}},
    "lora-linears-checkpointed-2": {
        "method": {"kind": "lora", "targets": "all-linear"}, "step": _CHECKPOINTED, "batch": {"accumulation": 2},
    },
    "qlora-checkpointed": {"method": {"kind": "qlora", "targets": "all-linear"}, "step": _CHECKPOINTED},
    "qlora-rows-2": {"method": {"kind": "qlora", "double_quantization": True}, "batch": {"micro_batch": 2}},
    "dora": {"method": {"kind": "dora"}},
    "fsdp8-checkpointed": {"precision": _SHARDED, "step": _CHECKPOINTED, "machine": {"gpus": 8}},
    "fsdp8-2": {"precision": _SHARDED, "batch": {"accumulation": 2}, "machine": {"gpus": 8}},
    "fsdp8-lora-checkpointed": {"method": {"kind": "lora"}, "step": _CHECKPOINTED, "machine": {"gpus": 8}},
    "hsdp2x4-checkpointed": {
        "precision": _SHARDED, "step": _CHECKPOINTED, "layout": {"strategy": "hsdp"}, "machine": {"gpus": 4, "nodes": 2},
    },
    "ddp4-autocast-checkpointed": {"precision": _FLOAT32, "step": _CHECKPOINTED, "layout": {"strategy": "ddp"}, "machine": {"gpus": 4}},
    "ddp4-2": {"batch": {"accumulation": 2}, "layout": {"strategy": "ddp"}, "machine": {"gpus": 4}},
    "ddp4-lora-rows-2": {"method": {"kind": "lora"}, "batch": {"micro_batch": 2}, "layout": {"strategy": "ddp"}, "machine": {"gpus": 4}},
}  # fmt: skip
"""what a way adds to a worksheet; rows have ROW_TOKENS tokens"""
ROW_TOKENS = 2048
POSITIONS = {"openai-community/gpt2-large": 1024}
"""of models that have fewer"""

_DENSE = (
    ("full", "full-autocast-checkpointed-2", "lora", "qlora-checkpointed", "fsdp8-checkpointed", "ddp4-2"),
    ("full-checkpointed", "full-autocast", "lora-linears-checkpointed-2", "dora", "fsdp8-2", "hsdp2x4-checkpointed"),
    ("full", "lora-linears-checkpointed-2", "qlora-rows-2", "fsdp8-lora-checkpointed", "ddp4-autocast-checkpointed", "ddp4-lora-rows-2"),
)
_EXPERTS = (
    ("full", "full-autocast", "lora", "fsdp8-checkpointed", "ddp4-2"),
    ("full-checkpointed", "full-autocast-checkpointed-2", "lora", "qlora-rows-2", "fsdp8-2"),
)


def _but(ways: tuple[str, ...], left_out: str) -> tuple[str, ...]:
    return tuple(way for way in ways if way != left_out)


MODELS: dict[str, tuple[str, ...]] = {
    "meta-llama/Llama-3.1-8B": _but(_DENSE[0], "lora"),
    "meta-llama/Llama-3.2-1B": _but(_DENSE[1], "dora"),
    "Qwen/Qwen2.5-7B": _but(_DENSE[2], "qlora-rows-2"),
    "Qwen/Qwen3-8B": _but(_DENSE[0], "ddp4-2"),
    "google/gemma-2-2b": _but(_DENSE[1], "lora-linears-checkpointed-2"),
    "google/gemma-3-1b-it": _but(_DENSE[2], "ddp4-lora-rows-2"),
    "mistralai/Mistral-7B-v0.1": _but(_DENSE[1], "full-autocast"),
    "microsoft/Phi-3-mini-4k-instruct": _but(_DENSE[0], "full-autocast-checkpointed-2"),
    "allenai/OLMo-2-1124-7B": _but(_DENSE[1], "full-checkpointed"),
    "openai-community/gpt2-large": _but(_DENSE[2], "full"),
    "EleutherAI/pythia-2.8b": _but(_DENSE[0], "fsdp8-checkpointed"),
    "tiiuae/falcon-7b": ("full", "full-autocast-checkpointed-2", "lora", "qlora-rows-2", "ddp4-lora-rows-2"),
    "mistralai/Mixtral-8x7B-v0.1": _but(_EXPERTS[0], "lora"),
    "Qwen/Qwen3-30B-A3B": _but(_EXPERTS[1], "qlora-rows-2"),
    "deepseek-ai/DeepSeek-V2-Lite": _but(_EXPERTS[0], "ddp4-2"),
    "openai/gpt-oss-20b": _but(_EXPERTS[1], "full-autocast-checkpointed-2"),
}
"""bundled models at their full depth, and the ways in which each is trained"""


def grid() -> Iterator[GridCase]:
    """All worksheets of the grid, model by model."""
    for model, ways in MODELS.items():
        for way in ways:
            rows = POSITIONS.get(model, ROW_TOKENS)
            worksheet: Table = {"model": {"name": model}, "batch": {"sequence_tokens": rows}}
            for section, keys in WAYS[way].items():
                worksheet[section] = {**worksheet.get(section, {}), **keys}
            yield GridCase(f"{model.rpartition('/')[2].lower()}/{way}", worksheet)
