"""The cases that test_full_depth.py leaves out: `make test-slow`."""

from __future__ import annotations

import pytest
from full_depth_cases import CASES, QUICK, Traced, require_equal

pytestmark = pytest.mark.real_classes


@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_repeated_blocks_and_all_blocks_agree_to_the_byte(name: str, traced: Traced) -> None:
    require_equal(name, traced)
