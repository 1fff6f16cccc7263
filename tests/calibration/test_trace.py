"""What a trace saw in the place of the estimate: by hand, in GiB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_by_hand import TRACE

import fullstep.calibration.trace
from fullstep.calibration.trace import outrank_with_trace, trace_trust
from fullstep.hardware import device_overheads, find_card
from fullstep.job import Job, complete, settings_of, worksheet_from_mapping
from fullstep.job.outside import outside_allocator
from fullstep.ledger import Caution, OtherPeaks
from fullstep.physics import estimate_memory
from fullstep.quantities import GIB

OVERHEADS = device_overheads(find_card("H100-SXM"))


def job(**machine: object) -> Job:
    table = {"gpu": "H100-SXM", "gpus": 8, **machine}
    return complete(worksheet_from_mapping({"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": table}))


def test_every_share_has_its_evidence() -> None:
    path = Path(fullstep.calibration.trace.__file__).parent / "data" / "trace_trust.json"
    for counter, row in json.loads(path.read_text("utf-8")).items():
        if counter != "about":
            assert row["evidence"] == "published" and row["source"]
    assert trace_trust().allocated == (0.01, 0.01) and trace_trust().reserved == (0.08, 0.03)


def test_traced_counters_with_their_bounds() -> None:
    """25 GiB within 1 %, 28 from 8 % below to 3 % above; beside them the context and a communicator of one node."""
    outside = OVERHEADS.context_bytes + OVERHEADS.communicator_bytes
    got = outrank_with_trace(TRACE, job(), estimate_memory(job()))
    assert [end / GIB for end in got.allocated] == pytest.approx([24.75, 25, 25.25])
    assert [end / GIB for end in got.reserved] == pytest.approx([25.76, 28, 28.84])
    assert got.device == got.reserved + outside
    want = [24.75 * GIB + outside.low, 25 * 1.01 * GIB + outside.likely, 25.25 * 1.02 * GIB + outside.high]
    assert list(got.needed) == pytest.approx(want)
    assert got.instants == TRACE.instants and got.peak_at == "second_forward"


@pytest.mark.parametrize(
    ("code", "allocated", "reserved"),
    [("F123", [24.25, 25, 26.25], [26.04, 28, 36.4]), ("F125", [23.75, 25, 35.0], [26.6, 28, 39.2])],
)
def test_a_trace_of_other_classes_is_trusted_less(code: str, allocated: list[float], reserved: list[float]) -> None:
    got = outrank_with_trace(TRACE._replace(notes=(Caution(code, "another class"),)), job(), None)
    assert [end / GIB for end in got.allocated] == pytest.approx(allocated)
    assert [end / GIB for end in got.reserved] == pytest.approx(reserved)


def test_what_a_trace_does_not_see_stays_estimated() -> None:
    estimate = estimate_memory(job())
    got = outrank_with_trace(TRACE, job(), estimate)
    assert (got.other_peaks, got.host_bytes, got.host_at) == (estimate.other_peaks, estimate.host_bytes, estimate.host_at)


def test_without_an_estimate_of_the_host_only_what_is_offloaded_is_known() -> None:
    machine = {"gpu": "H100-SXM", "gpus": 8}
    settings = settings_of(worksheet_from_mapping({"model": {"config": {"model_type": "mamba"}}, "machine": machine}))
    got = outrank_with_trace(TRACE._replace(host_bytes=3 * GIB), settings, None)
    assert got.other_peaks == OtherPeaks()
    assert (got.host_bytes, got.host_at) == (24 * GIB, "training")
    assert got.parameters == TRACE.parameters


def test_the_cache_stops_where_the_card_ends() -> None:
    """A card of 29.6 GiB: the replay reserved 28, the high bound 28.84 and the context are more than there is."""
    small = job(gpu_memory_gib=29.6)
    room, outside = small.machine.usable_bytes, outside_allocator(small)
    assert room is not None and 28 * GIB < room - outside.low < 28.84 * GIB
    got = outrank_with_trace(TRACE, small, None)
    assert got.reserved.likely == 28 * GIB and got.reserved.high == room - outside.low


def test_reserved_is_never_below_allocated() -> None:
    got = outrank_with_trace(TRACE._replace(reserved_peak_bytes=20 * GIB), job(), None)
    assert got.reserved.likely == 25 * GIB and got.reserved.low >= got.allocated.low


def test_cautions_of_the_trace_and_that_it_ran_out() -> None:
    seen = TRACE._replace(out_of_memory="2.0 GiB in backward", notes=(Caution("F200", "a note"),))
    codes = [caution.code for caution in outrank_with_trace(seen, job(), None).cautions]
    assert codes[:2] == ["F120", "F200"]
    assert "F120" not in [caution.code for caution in outrank_with_trace(TRACE._replace(notes=()), job(), None).cautions]


def test_cautions_about_the_peak_are_about_the_traced_one() -> None:
    """5 GiB of logits are not the largest part of the traced peak; of one with 8 they are."""
    peak = TRACE.instants[1]
    more = peak._replace(holdings=peak.holdings._replace(logits_and_loss=8 * GIB))
    codes = [
        [caution.code for caution in outrank_with_trace(TRACE._replace(instants=(instant,), notes=()), job(), None).cautions]
        for instant in (peak, more)
    ]
    assert codes == [[], ["F100"]]


def test_a_trace_outside_the_formulas_bounds_is_told() -> None:
    estimate = estimate_memory(job())
    inside, outside = int(estimate.allocated.likely), int(estimate.allocated.high + GIB)
    codes = [
        {caution.code for caution in outrank_with_trace(TRACE._replace(allocated_peak_bytes=peak), job(), estimate).cautions}
        for peak in (inside, outside)
    ]
    assert "F124" not in codes[0] and "F124" in codes[1]
