"""The callback under torchrun: two ranks of a Trainer stop, and go on bit for bit. `make test-slow`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fullstep.resume.manifest import read_manifest

pytestmark = pytest.mark.real_classes


def _by_two_ranks(folder: Path, last_step: int) -> list[tuple[int, dict[str, Any]]]:
    """(Last step, weights) of each rank."""
    script = Path(__file__).with_name("trainer_ranks.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    ended = subprocess.run(
        [*launcher, str(folder), str(last_step)], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


def test_two_ranks(tmp_path: Path) -> None:
    """A later checkpoint that lacks the random numbers of a rank is passed over by both, and they end like two that never stopped."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    uninterrupted = _by_two_ranks(whole, 6)
    assert {step for step, _ in _by_two_ranks(stopped, 4)} == {4}
    assert read_manifest(str(stopped), "checkpoint-4").ranks == 2
    shutil.copytree(stopped / "checkpoint-4", stopped / "checkpoint-5")
    (stopped / "checkpoint-5" / "rng_state_1.pth").unlink()
    resumed = _by_two_ranks(stopped, 6)
    assert (stopped / "aside-checkpoint-5").exists()
    for (step, weights), (last, whole_weights) in zip(resumed, uninterrupted, strict=True):
        assert step == last == 6 and all(torch.equal(weights[name], value) for name, value in whole_weights.items())
