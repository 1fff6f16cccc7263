"""States of real optimizers over a real class, in bytes, against arithmetic from the shapes of its weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.program.optimizers import Together
from fullstep.lab.program.real import Program, build_program

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
MODEL = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
VECTORS = (2 * 4 + 1) * 64
EDGES = 2 * 1000 * 64
INSIDE = 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)
ALL = VECTORS + EDGES + INSIDE
SIDES = 4 * (2 * (64 + 64) + 2 * (32 + 64) + 3 * (128 + 64)) + 2 * (1000 + 64)
"""rows and columns of every matrix"""
WIDE = EDGES // 2 + VECTORS + 8 * 32 * 64
"""what has float32 states among 8-bit ones: the embedding, and tensors of fewer than 4,096 elements"""
COUNTERS = 4 * (2 * 4 + 1 + 2)
"""float32 step counters of AdamW: norms, embedding and head"""


def stepped(name: str, **sections: Any) -> Program:
    table = {"model": {"config": MODEL}, "layout": {"strategy": "single"}, "optimizer": {"name": name}, **sections}
    program = build_program(MODEL, settings_of(worksheet_from_mapping(table)), torch.device("cpu"), seed=1, dropout=None, rate=1e-3)
    for parameter in program.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn_like(parameter)
    program.optimizer.step()
    return program


def state_bytes(program: Program) -> int:
    states = [value for each in program.optimizer.state.values() for value in each.values()]
    return sum(each.numel() * each.element_size() for each in states if isinstance(each, torch.Tensor))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sgd", 0),
        ("sgd_momentum", 2 * ALL),
        ("muon", 2 * (INSIDE + 2 * (EDGES + VECTORS)) + COUNTERS),
        ("adafactor", 4 * (SIDES + VECTORS)),
    ],
)
def test_states(name: str, expected: int) -> None:
    program = stepped(name)
    assert state_bytes(program) == pytest.approx(expected, abs=200)  # Adafactor keeps the mean square of each of 39 weights besides
    assert (program.parameters, program.trainable_parameters) == (ALL, ALL)


def test_two_optimizers_are_one_with_its_own_states() -> None:
    program = stepped("muon")
    optimizer = program.optimizer
    assert isinstance(optimizer, Together) and len(optimizer.param_groups) == 2
    assert len(optimizer.state) == len(list(program.model.parameters())) == 39
    assert len(optimizer.state_dict()["state"]) == 39
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in program.model.parameters())


@pytest.mark.parametrize(
    ("name", "module", "expected"),
    [
        ("lion", "lion_pytorch", 2 * ALL),
        ("adamw_8bit", "bitsandbytes", 2 * (4 * WIDE + (ALL - WIDE) * (1 + 4 / 256))),
        ("paged_adamw", "bitsandbytes", 2 * 4 * ALL),
    ],
)
def test_states_of_libraries(name: str, module: str, expected: float) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed")
    program = stepped(name)
    codes = {id(value): value.nbytes for each in program.optimizer.state.values() for key, value in each.items() if "qmap" in key}
    held = sum(
        value.nbytes for each in program.optimizer.state.values() for key, value in each.items()
        if isinstance(value, torch.Tensor) and "qmap" not in key
    )  # fmt: skip
    assert held == pytest.approx(expected, rel=1e-3) and len(codes) <= 2  # which all share
