"""A folder that something else wrote is refused, unless somebody says by hand that it is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from alone import Alone
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict

from fullstep.resume import Checkpoints, LoadError

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]


def _plain_save(training: Alone, folder: Path) -> None:
    model, optimizer = get_state_dict(training.model, training.optimizer)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder, no_dist=True)


def _bare(folder: Path, seed: int) -> tuple[Checkpoints, nn.Module, torch.optim.Optimizer]:
    """Without scheduler and loader, as other savers have it."""
    torch.manual_seed(seed)
    training = Alone(folder)
    return Checkpoints(folder, model=training.model, optimizer=training.optimizer, signals=()), training.model, training.optimizer


def test_what_torch_saved_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    training = Alone(tmp_path)
    training.train()
    _plain_save(training, tmp_path / "step-00000005")
    again, _, _ = _bare(tmp_path, 1)
    assert again.resume() == 0
    assert "step-00000005 is passed over" in caplog.text and "has no fullstep.json" in caplog.text
    with pytest.raises(LoadError, match=r"no whole checkpoint of step 5; .* has no fullstep\.json: it was not completed, or"):
        again.load(5)


def test_it_is_taken_by_hand(tmp_path: Path) -> None:
    training = Alone(tmp_path)
    training.train(2)
    _plain_save(training, tmp_path / "theirs")
    again, model, optimizer = _bare(tmp_path, 1)
    torch.manual_seed(5)
    drawn = torch.get_rng_state()
    again.load_untrusted("theirs")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in training.model.state_dict().items())
    for parameter, theirs in zip(model.parameters(), training.model.parameters(), strict=True):
        states, expected = optimizer.state[parameter], training.optimizer.state[theirs]
        assert all(torch.equal(states[name], expected[name]) for name in ("step", "exp_avg", "exp_avg_sq"))
    assert torch.equal(torch.get_rng_state(), drawn)  # it has no random numbers, and these stay as they are


def test_not_what_does_not_fit(tmp_path: Path) -> None:
    training = Alone(tmp_path)
    training.train()
    _plain_save(training, tmp_path / "theirs")
    with pytest.raises(LoadError, match=r"loader is not in it|scheduler is not in it"):
        Alone(tmp_path).checkpoints.load_untrusted("theirs")
    with pytest.raises(LoadError, match="has no metadata that can be read: No such file"):
        Alone(tmp_path).checkpoints.load_untrusted("nowhere")


def test_ours_is_taken_without_its_manifest(tmp_path: Path) -> None:
    training = Alone(tmp_path)
    saved: dict[str, Any] = training.saved()
    (tmp_path / "step-00000001" / "fullstep.json").unlink()
    again = Alone(tmp_path)
    assert again.resume() == 0
    again.checkpoints.load_untrusted("step-00000001")
    assert again.digests() == saved
