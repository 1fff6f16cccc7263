"""States of real optimizers over a real class, in bytes, against arithmetic from the shapes of its weights."""

from __future__ import annotations

import pytest
import torch
from stepped import ALL, EDGES, INSIDE, VECTORS, stepped

from fullstep.lab.program.optimizers import Together
from fullstep.lab.program.real import Program

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
SIDES = 4 * (2 * (64 + 64) + 2 * (32 + 64) + 3 * (128 + 64)) + 2 * (1000 + 64)
"""rows and columns of every matrix"""
COUNTERS = 4 * (2 * 4 + 1 + 2)
"""float32 step counters of AdamW: norms, embedding and head"""


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
