"""More of test_real_saves.py, which take longer: `make test-slow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_real_saves import Make, adapters_distributed, what_accelerate_saves
from test_real_saves import test_distributed_checkpoints as distributed

pytestmark = pytest.mark.real_classes


def test_four_ranks(job: Make, small: dict[str, Any], tmp_path: Path) -> None:
    """7 % of so small a checkpoint on 4 ranks are container."""
    distributed(job, small, tmp_path, "0.6", 4)


def test_of_adapters(job: Make, small: dict[str, Any], tmp_path: Path) -> None:
    adapters_distributed(job, small, tmp_path)


@pytest.mark.parametrize(("form", "files"), [("sharded", 6), ("full", 2)])
def test_what_accelerate_saves_for_the_trainer(job: Make, small: dict[str, Any], tmp_path: Path, form: str, files: int) -> None:
    what_accelerate_saves(job, small, tmp_path, form, files)
