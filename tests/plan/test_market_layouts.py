"""The few layouts that a market search tries, against the whole search on the same machine, by the real formulas."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.api.answer import size
from fullstep.api.timing import with_timing
from fullstep.job import edit, worksheet_from_mapping
from fullstep.plan.search import plan

from .market_by_hand import offer, renter

CLOSE = 1.1
"""times the step of the best layout of a whole search"""


@pytest.mark.parametrize(
    ("model", "method", "rows"),
    [
        ("meta-llama/Llama-3.1-8B", "full", 16),
        ("meta-llama/Llama-3.1-8B", "lora", 16),
        ("Qwen/Qwen2.5-72B", "qlora", 16),
        ("meta-llama/Llama-3.2-1B", "full", 64),
    ],
)
@pytest.mark.parametrize(
    ("card", "gpus"), [("A100-PCIE-80GB", 4), ("H100-SXM", 8), ("RTX4090", 2), ("B200", 8), ("A10", 1), ("L40S", 8)]
)
def test_it_comes_close_to_the_whole_search(model: str, method: str, rows: int, card: str, gpus: int) -> None:
    base: dict[str, Any] = {
        "model": {"name": model}, "method": {"kind": method}, "batch": {"sequence_tokens": 4096, "global_rows": rows},
        "data": {"tokens": 2e7},
    }  # fmt: skip
    sheet = worksheet_from_mapping(base)
    found = plan(sheet, size, with_timing, renter(offer(card, gpus, "1")))
    whole = plan(edit(sheet, {"machine.gpu": card, "machine.gpus": gpus}), size, with_timing)
    paces = [trial.seconds_per_token for trial in whole.options if trial.fits and trial.seconds_per_token is not None]
    mine = [trial.seconds_per_token for trial in found.options if trial.fits and trial.seconds_per_token is not None]
    assert bool(mine) == bool(paces), "what fits in one search has to fit in the other"
    assert not paces or mine[0] <= CLOSE * min(paces)
