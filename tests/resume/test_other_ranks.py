"""The same ranks go on bit for bit, each with its own random numbers. Another number of them goes on with the same state and new ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import Nursery, Training

pytestmark = pytest.mark.real_classes


def _draws(training: Training, step: int) -> dict[int, list[float]]:
    return {event["rank"]: event["draws"] for event in training.events() if event.get("step") == step and "draws" in event}


def _digest(training: Training, step: int, name: str = "digest") -> str:
    return next(event[name] for event in training.events() if event.get("step") == step and name in event)


def _losses(training: Training) -> dict[int, float]:
    return {event["step"]: event["loss"] for event in training.events() if "loss" in event}


@pytest.mark.parametrize("wrap", ["fsdp", "ddp"])
def test_the_same_ranks(tmp_path: Path, nursery: Nursery, wrap: str) -> None:
    given = (tmp_path, "--wrap", wrap, "--save-every", 2, "--draws")
    whole = nursery.start(*given, "--steps", 6, "--no-save", "--digest-every", 2)
    assert whole.ended() == [0, 0], whole.text()
    first = nursery.start(*given, "--steps", 2)
    assert first.ended() == [0, 0]
    again = nursery.start(*given, "--steps", 6)
    assert again.ended() == [0, 0]
    assert again.events()[0]["resumed"] == 2 and again.events()[0]["rng"] == "restored"
    for step in (3, 6):
        assert _draws(again, step) == _draws(whole, step)
        assert _draws(again, step)[0] != _draws(again, step)[1]  # not rank 0's for all
    assert _digest(again, 6) == _digest(whole, 6)
    assert [_losses(again)[step] for step in (3, 4, 5, 6)] == [_losses(whole)[step] for step in (3, 4, 5, 6)]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_ranks(tmp_path: Path, nursery: Nursery, before: int, after: int) -> None:
    given = (tmp_path, "--wrap", "fsdp", "--save-every", 2, "--draws")
    first = nursery.start(*given, "--steps", 4, ranks=before)
    assert first.ended() == [0] * before, first.text()
    again = nursery.start(*given, "--steps", 6, ranks=after)
    assert again.ended() == [0] * after, again.text()
    assert again.events()[0]["resumed"] == 4 and again.events()[0]["rng"] == "new streams"
    assert _digest(again, 4, "shared") == _digest(first, 4, "shared")
    assert _digest(again, 4) != _digest(first, 4)
    seen = [draws for step in (1, 2, 3, 4) for draws in _draws(first, step).values()]
    seen += [draws for step in (5, 6) for draws in _draws(again, step).values()]
    assert len({draw for draws in seen for draw in draws}) == 2 * len(seen)  # no stream is one that another rank had
    third = nursery.start(*given, "--steps", 6, ranks=after)
    assert third.ended() == [0] * after
    assert third.events()[0]["resumed"] == 6 and third.events()[0]["rng"] == "restored"
    assert _digest(third, 6) == _digest(again, 6)


def test_a_loader_of_each_rank_cannot_be_divided_anew(tmp_path: Path, nursery: Nursery) -> None:
    given = (tmp_path, "--wrap", "ddp", "--save-every", 2, "--own-loader", "--steps", 2)
    assert nursery.start(*given).ended() == [0, 0]
    same = nursery.start(*given)
    assert same.ended() == [0, 0] and same.events()[0]["resumed"] == 2
    other = nursery.start(*given, ranks=1)
    assert other.ended() == [1]
    assert "loader was saved for each of 2 ranks, and cannot be divided anew among 1. Nothing was changed." in other.text()
