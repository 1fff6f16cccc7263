"""Two hundred kills in the middle of saves, in every mode and layout, and a rank that dies under torchrun: collected only when named."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import Kills, Truth
from processes import Nursery, Torchrun

from fullstep.resume import checkpoints_in

pytestmark = pytest.mark.real_classes
STEPS = 160
LIVES = 20
"""of one training, one after the other"""
CASES = [
    *(("sync", wrap, "trainers") for wrap in ("ddp", "ddp", "fsdp")),
    *(("thread", wrap, "trainers") for wrap in ("ddp", "ddp", "fsdp")),
    *(("process", wrap, whom) for wrap in ("ddp", "fsdp") for whom in ("trainers", "tree")),
]


@pytest.fixture(scope="module")
def truths(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Truth]:
    """By layout."""
    return {wrap: Truth.of(nursery, tmp_path_factory.mktemp("truth"), "--wrap", wrap, steps=STEPS) for wrap in ("ddp", "fsdp")}


@pytest.mark.parametrize("seed", range(len(CASES)), ids=[" ".join(case) for case in CASES])
def test_killed(nursery: Nursery, tmp_path: Path, truths: dict[str, Truth], seed: int) -> None:
    mode, wrap, whom = CASES[seed]
    training = Kills(nursery, tmp_path / "runs", ("--wrap", wrap, "--mode", mode), truth=truths[wrap], seed=seed, spawns=True)
    training.go(LIVES, lambda _: whom)
    print(f"{mode}, {wrap}, {whom}: {dict(training.outcomes)}")
    left = LIVES // 2 if (mode, whom) != ("process", "trainers") else 1  # a saving process that is left alone completes most of them
    assert training.outcomes["an incomplete folder"] >= left, training.outcomes
    assert sum(training.outcomes[each] for each in ("no folder", "an incomplete folder", "a checkpoint")) == LIVES


def test_torchrun_ends_the_others_when_a_rank_dies_in_a_save(tmp_path: Path, nursery: Nursery) -> None:
    faults = {"dies_after": 2000, "on": [1], "while": str(tmp_path / "now")}
    given = (tmp_path / "runs", "--wrap", "ddp", "--save-every", 2, "--steps", 10**6, "--fault-at", 4)
    with Torchrun(tmp_path, *given, ranks=2, faults=faults) as training:
        assert training.ended() != 0
        assert training.left() == []
    assert [each.step for each in checkpoints_in(tmp_path / "runs") if each.manifest is not None] == [2]
    again = nursery.start(tmp_path / "runs", "--wrap", "ddp", "--steps", 2)
    saved = next(event for event in training.events() if "digest" in event)
    assert again.until(lambda event: "digest" in event) == saved
    assert again.ended() == [0, 0]


def test_so_many_in_all() -> None:
    assert len(CASES) * LIVES == 200
