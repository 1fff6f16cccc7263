"""A training that goes back to an earlier step, and optimizers that are not the one that was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fullstep.resume import Checkpoints, LoadError, export_model
from fullstep.resume.stopping import Notice

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]


def _trained(groups: Any = None) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    parameters = list(model.parameters())
    chosen = parameters if groups is None else [{"params": [parameters[at] for at in group]} for group in groups]
    optimizer = torch.optim.AdamW(chosen)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def _checkpoints(folder: Path, groups: Any = None, **settings: Any) -> Checkpoints:
    model, optimizer = _trained(groups)
    return Checkpoints(folder, model=model, optimizer=optimizer, **settings)


def test_what_is_saved_after_going_back_is_newer_than_what_was_beyond(tmp_path: Path) -> None:
    first = _checkpoints(tmp_path, keep=3)
    first.save(50)
    first.save(100)
    assert first.load(50) is not None
    first.save(60)
    again = _checkpoints(tmp_path, keep=3)
    assert again.resume() == 60
    again.save(70)
    again.save(80)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["step-00000060", "step-00000070", "step-00000080"]


def test_a_checkpoint_that_could_not_be_read_does_not_come_back_later(tmp_path: Path) -> None:
    first = _checkpoints(tmp_path)
    first.save(50)
    first.save(100)
    manifest = tmp_path / "step-00000100" / "fullstep.json"
    hidden = manifest.rename(tmp_path / "hidden")
    second = _checkpoints(tmp_path)
    assert second.resume() == 50
    second.save(60)
    if (tmp_path / "step-00000100").exists():
        hidden.rename(manifest)
    assert _checkpoints(tmp_path).resume() == 60


def test_without_going_back_the_highest_step_is_the_newest(tmp_path: Path) -> None:
    one = _checkpoints(tmp_path)
    one.save(2)
    one.save(10)
    assert _checkpoints(tmp_path).resume() == 10


@pytest.mark.parametrize(
    ("saved", "here", "why"),
    [
        ([(0, 1)], [(0, 1, 2, 3)], "1.bias was not in its optimizer"),
        ([(0, 1, 2, 3)], [(0, 1)], "1.bias was in its optimizer"),
        ([(0, 1), (2, 3)], [(0,), (1, 2, 3)], "groups are divided otherwise"),
    ],
)
def test_another_optimizer_is_refused(tmp_path: Path, saved: Any, here: Any, why: str) -> None:
    _checkpoints(tmp_path, saved).save(1)
    other = _checkpoints(tmp_path, here)
    before = other.digests()
    with pytest.raises(LoadError, match=why):
        other.load()
    assert {name: digest for name, digest in other.digests().items() if not name.startswith("rng")} == {
        name: digest for name, digest in before.items() if not name.startswith("rng")
    }


def test_groups_in_another_order_are_the_same(tmp_path: Path) -> None:
    _checkpoints(tmp_path, [(0, 1), (2, 3)]).save(1)
    assert _checkpoints(tmp_path, [(2, 3), (0, 1)]).resume() == 1


def test_what_something_else_sealed_is_passed_over(tmp_path: Path) -> None:
    one = _checkpoints(tmp_path)
    one.save(3)
    export_model(tmp_path / "step-00000000.7", nn.Linear(2, 2))  # a manifest of step 0 in a folder that is named like one of ours
    assert _checkpoints(tmp_path).resume() == 3
    with pytest.raises(LoadError, match="something else than a training"):
        _checkpoints(tmp_path).load(0)


@pytest.mark.parametrize("step", [-1, 1.5, "7", None])
def test_a_step_is_a_whole_number(tmp_path: Path, step: Any) -> None:
    with pytest.raises(ValueError, match="a whole number from 0 on"):
        _checkpoints(tmp_path).save(step)
    assert not list(tmp_path.iterdir())


def test_a_step_of_a_tensor_and_a_note(tmp_path: Path) -> None:
    one = _checkpoints(tmp_path)
    assert one.save(torch.tensor(7), note={"why": "a test"}).step == 7  # type: ignore[arg-type]
    for bad in ({"a": object()}, {1: 2, "1": 3}):
        with pytest.raises(ValueError, match="note"):
            one.save(8, note=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("keep", [0, 1.5, "2"])
def test_so_many_are_kept(tmp_path: Path, keep: Any) -> None:
    with pytest.raises(ValueError, match="keep"):
        _checkpoints(tmp_path, keep=keep)


def test_an_optimizer_whose_states_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="LBFGS"):
        Checkpoints(tmp_path, model=model, optimizer=torch.optim.LBFGS(model.parameters()))


def test_the_notice_counts_what_is_under_way() -> None:
    assert Notice(10.0, 4.0).suffices
    assert Notice(10.0, 4.0, under_way_seconds=1.0).suffices  # 3 s more, and then 4 s
    assert not Notice(6.0, 4.0, under_way_seconds=1.0).suffices
    assert "with one under way for 1.0 s: it will not end in time" in str(Notice(6.0, 4.0, under_way_seconds=1.0))
    assert Notice(5.0, 4.0, under_way_seconds=9.0).suffices  # it must end any moment
