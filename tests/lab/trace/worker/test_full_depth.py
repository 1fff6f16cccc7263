"""The doubter's test: blocks that are repeated give the same trace, to the byte, as all of them traced.

Recomputation of every second block, kinds that alternate, layouts that reach from one block to the next: some of these cases here, the
others, optimizers that walk over parameters one by one or in lists among them, in slow_full_depth.py.
"""

from __future__ import annotations

import pytest
from full_depth_cases import LLAMA, QUICK, Traced, require_equal, worksheet_of

pytestmark = pytest.mark.real_classes


@pytest.mark.parametrize("name", QUICK)
def test_repeated_blocks_and_all_blocks_agree_to_the_byte(name: str, traced: Traced) -> None:
    require_equal(name, traced)


def test_where_even_a_wider_edge_leaves_nothing_out_the_report_says_so(traced: Traced) -> None:
    """Six blocks, of which the first keeps no angles: five differ, and seven are not there."""
    found = traced(worksheet_of(LLAMA, {"method.kind": "lora", "method.targets": ["up_proj", "down_proj"]}))
    assert found.blocks_traced == found.blocks == 6
    assert [note.code for note in found.notes] == ["F122"]
