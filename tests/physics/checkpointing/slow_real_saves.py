"""More of test_real_saves.py, which take longer: `make test-slow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_real_saves import Make
from test_real_saves import test_distributed_checkpoints as distributed
from test_real_saves import test_what_accelerate_saves_for_the_trainer as by_accelerate

pytestmark = pytest.mark.real_classes


def test_four_ranks(job: Make, small: dict[str, Any], tmp_path: Path) -> None:
    """7 % of so small a checkpoint on 4 ranks are container."""
    distributed(job, small, tmp_path, "0.6", 4)


def test_in_full(job: Make, small: dict[str, Any], tmp_path: Path) -> None:
    by_accelerate(job, small, tmp_path, "full", 2)
