"""A small class whose weights can be counted by hand, after one step of its optimizer."""

from __future__ import annotations

from typing import Any

import torch

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.program.real import Program, build_program

MODEL = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
VECTORS = (2 * 4 + 1) * 64
EDGES = 2 * 1000 * 64
INSIDE = 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)
ALL = VECTORS + EDGES + INSIDE


def stepped(name: str, **sections: Any) -> Program:
    table = {"model": {"config": MODEL}, "layout": {"strategy": "single"}, "optimizer": {"name": name}, **sections}
    program = build_program(MODEL, settings_of(worksheet_from_mapping(table)), torch.device("cpu"), seed=1, dropout=None, rate=1e-3)
    for parameter in program.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn_like(parameter)
    program.optimizer.step()
    return program
