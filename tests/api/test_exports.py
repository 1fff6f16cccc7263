"""What a program may call is a promise: this list changes only on purpose."""

from __future__ import annotations

from importlib import import_module

import pytest

import fullstep.api
from fullstep.api import compare, estimate, largest, plan, worksheet_from_mapping

SHEET = worksheet_from_mapping({"model": {"name": "meta-llama/Llama-3.1-8B"}, "method": {"kind": "lora"}, "machine": {"gpu": "H100-SXM"}})


def test_the_list() -> None:
    functions = [
        "checkpoint_of", "compare", "compare_offers", "drill", "estimate", "largest", "link", "offers", "plan", "probe", "profile_data",
        "read_worksheet", "refresh_offers", "renter_of", "trace", "worksheet_from_mapping",
    ]  # fmt: skip
    assert fullstep.api.__all__ == functions
    assert all(callable(getattr(fullstep.api, name)) for name in fullstep.api.__all__)


def test_no_module_hides_a_function() -> None:
    """A module of the same name would take the function's place once it is imported."""
    for module in ("answer", "data", "prices", "search", "sellers", "traced", "witness"):
        import_module(f"fullstep.api.{module}")
    assert {type(getattr(fullstep.api, name)).__name__ for name in fullstep.api.__all__} == {"function"}


def test_anything_else_is_not_there() -> None:
    with pytest.raises(AttributeError, match="price"):
        fullstep.api.price  # noqa: B018


def test_the_functions_agree() -> None:
    answer = estimate(SHEET)
    assert compare(SHEET, SHEET) == (answer, answer)
    assert plan(SHEET).as_written.answer == answer
    found = largest(SHEET, "micro_batch")
    assert found.trial is not None and found.trial.answer.memory.verdict == "fits"


def test_a_pilot_outranks_the_estimate() -> None:
    measured = worksheet_from_mapping({**SHEET.as_dict(), "measured": {"allocated_peak_gib": 70}})
    estimated, piloted = estimate(SHEET).memory, estimate(measured).memory
    assert estimated.evidence == "estimated" and piloted.evidence == "measured"
    assert piloted.allocated_peak_bytes.low == piloted.allocated_peak_bytes.high == 70 * 2**30
    assert piloted.needed_bytes.low >= 70 * 2**30 > estimated.needed_bytes.high
    assert piloted.instants == estimated.instants


def test_the_list_is_all_that_is_seen() -> None:
    assert dir(fullstep.api) == sorted(fullstep.api.__all__)


@pytest.mark.parametrize(("key", "peak_gib"), [("allocated_peak_gib", 79.0), ("reserved_peak_gib", 79.0), ("device_peak_gib", 79.5)])
def test_a_pilot_that_ran_is_at_least_tight(key: str, peak_gib: float) -> None:
    """An H100 has 79.65 GiB, of which torch can use 79.11."""
    measured = worksheet_from_mapping({**SHEET.as_dict(), "batch": {"micro_batch": 64}, "measured": {key: peak_gib}})
    assert estimate(worksheet_from_mapping({**SHEET.as_dict(), "batch": {"micro_batch": 64}})).memory.verdict == "does_not_fit"
    assert estimate(measured).memory.verdict == "tight"
