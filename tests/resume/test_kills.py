"""Killed in the middle of a save: the checkpoint before is as it was, none that is incomplete counts, and training goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import Kills, Truth
from processes import Nursery

pytestmark = pytest.mark.real_classes
STEPS = 40


@pytest.fixture(scope="module")
def pair(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """Of two ranks with DDP."""
    return Truth.of(nursery, tmp_path_factory.mktemp("truth"), "--wrap", "ddp", steps=STEPS)


@pytest.fixture(scope="module")
def single(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """Of one rank with DDP."""
    return Truth.of(nursery, tmp_path_factory.mktemp("truth"), "--wrap", "ddp", steps=STEPS, ranks=1)


@pytest.mark.parametrize(("mode", "kills"), [("sync", 4), ("thread", 3)])
def test_trainers_are_killed(nursery: Nursery, tmp_path: Path, pair: Truth, mode: str, kills: int) -> None:
    training = Kills(nursery, tmp_path / "runs", ("--wrap", "ddp", "--mode", mode), truth=pair, seed=1)
    training.go(kills)
    assert training.outcomes["an incomplete folder"] >= kills // 2, training.outcomes


def test_savers_that_outlive_their_trainers(nursery: Nursery, tmp_path: Path, single: Truth) -> None:
    """Two times the trainer alone, once the whole tree. The next life begins at once, or when the orphan has ended."""
    training = Kills(nursery, tmp_path / "runs", ("--wrap", "ddp", "--mode", "process"), truth=single, seed=2, ranks=1)
    training.go(3, lambda number: "tree" if number == 1 else "trainers")
    assert training.outcomes["tree: a checkpoint"] + training.outcomes["tree: an incomplete folder"] == 1, training.outcomes
    assert training.outcomes["trainers: a checkpoint"] + training.outcomes["trainers: an incomplete folder"] == 2, training.outcomes
