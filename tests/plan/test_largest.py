"""Bisection against the answer by hand. Figures: see by_hand.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.errors import InputError
from fullstep.job import Job, Worksheet
from fullstep.ledger import Answer
from fullstep.plan.largest import largest
from fullstep.plan.trial import Size, Trial

from .by_hand import answer_of, by_hand

Sheet = Callable[..., Worksheet]


def test_micro_batch(sheet: Sheet, size: Size) -> None:
    """10 of state + 14 a row + 1 of bound <= 79.1 * 0.95 = 75.2: four rows (67), not five (81). Accumulation stays."""
    found = largest(sheet(batch={"accumulation": 8}), "micro_batch", size)
    assert (found.value, found.next_value) == (4, 5)
    assert found.trial is not None and found.trial.fits
    assert found.trial.job.batch.accumulation == 8
    assert isinstance(found.next_trial, Trial) and not found.next_trial.fits


def test_stated_rows_of_a_step_stay_and_accumulation_follows(sheet: Sheet, size: Size) -> None:
    """48 rows over 8 GPUs are 6 each: of the micro-batches 1, 2, 3 and 6 three rows fit (53), six do not (95)."""
    found = largest(sheet(batch={"global_rows": 48}), "micro_batch", size)
    assert (found.value, found.next_value) == (3, 6)
    assert found.trial is not None
    assert found.trial.job.batch.accumulation == 2
    assert found.trial.worksheet.stated("batch.global_rows") == 48
    assert found.trial.worksheet.stated("batch.accumulation") is None


def test_rows_that_all_fit_at_once(sheet: Sheet, size: Size) -> None:
    """16 rows over 8 GPUs are 2 each: 39 of 75."""
    found = largest(sheet(batch={"global_rows": 16}), "micro_batch", size)
    assert (found.value, found.next_value) == (2, None)
    assert "batch.global_rows = 16" in found.note


def test_sequence_tokens_stop_at_the_models_positions(sheet: Sheet, size: Size) -> None:
    """10 + 28 at the model's 8,192 positions: there is room, but no more positions."""
    found = largest(sheet(), "sequence_tokens", size)
    assert found.value == 8192
    assert found.next_value is None
    assert "8,192" in found.note


def test_sequence_tokens_that_memory_stops(sheet: Sheet) -> None:
    """60 + 14 * tokens / 4096 + 1 <= 75.2 as the card gives it: about 4,100 tokens, in steps of 64."""
    found = largest(sheet(), "sequence_tokens", by_hand(state_gib=480))
    assert isinstance(found.value, int) and found.value % 64 == 0
    assert found.next_value == found.value + 64
    usable = found.trial.job.machine.usable_bytes if found.trial else None
    assert usable is not None
    room = usable / 2**30 * 0.95 - 61
    assert found.value <= room / 14 * 4096 < found.value + 64


def test_rank(sheet: Sheet) -> None:
    """A GiB for every rank on 20: 54 fit beside 1 of bound."""

    def grows(job: Job) -> Answer:
        return answer_of(job, 20 + job.method.rank, 0, 0)

    found = largest(sheet(method={"kind": "lora", "rank": 8}), "rank", grows)
    assert (found.value, found.next_value) == (54, 55)


def test_not_even_the_smallest(sheet: Sheet) -> None:
    found = largest(sheet(), "micro_batch", by_hand(state_gib=1000))
    assert found.value is None and found.trial is None
    assert found.next_value == 1
    assert [remedy.answer.memory.verdict for remedy in found.remedies] == ["fits"] * len(found.remedies) != []


def test_models_from_the_largest_down(sheet: Sheet) -> None:
    def by_parameters(job: Job) -> Answer:
        return answer_of(job, job.shape.parameters * 2 / 2**30, 0, 0)

    models = [("meta-llama/Llama-3.1-8B", 8030261248), ("meta-llama/Llama-3.1-70B", 70553706496)]
    found = largest(sheet(), "model", by_parameters, models)
    assert found.value == "meta-llama/Llama-3.1-8B"
    assert found.next_value == "meta-llama/Llama-3.1-70B"


def test_what_cannot_be_varied_is_said(sheet: Sheet, size: Size) -> None:
    with pytest.raises(InputError, match="full fine-tuning has no rank"):
        largest(sheet(), "rank", size)
    with pytest.raises(InputError, match="no GPU is named"):
        largest(sheet(machine={"gpu": None}), "micro_batch", size)


@pytest.mark.parametrize("kind", ["full", "ia3"])
def test_a_method_without_a_rank_cannot_vary_it(sheet: Sheet, size: Size, kind: str) -> None:
    with pytest.raises(InputError, match="has no rank; allowed: lora, qlora, dora, prefix_tuning, bottleneck"):
        largest(sheet(method={"kind": kind}), "rank", size)


def test_virtual_tokens_are_not_bounded_by_the_width_of_the_model(sheet: Sheet) -> None:
    """20 GiB whatever the rank: only the worksheet bounds it."""
    found = largest(sheet(method={"kind": "prefix_tuning"}), "rank", lambda job: answer_of(job, 20, 0, 0))
    assert found.value == 65_536 and "virtual tokens" in found.note
    found = largest(sheet(method={"kind": "bottleneck"}), "rank", lambda job: answer_of(job, 20, 0, 0))
    assert found.value == 4096 and "a wider bottleneck" in found.note
