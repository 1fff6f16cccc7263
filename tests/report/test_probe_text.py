"""A probe on paper: figures of a made-up one, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fullstep.calibration.residuals import BesideLine
from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.ledger.probe import OutOfMemory, Overlap, Probe, ProbedRank, StepSample, Stretch
from fullstep.quantities import GIB, Bounds
from fullstep.report.paper import Paper
from fullstep.report.probe_text import Beside, probe_text

SETTINGS = settings_of(worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpus": 2}}))


def _rank(rank: int, seconds: tuple[float, ...]) -> ProbedRank:
    memory = (
        Stretch(0, 0, "load", 2 * GIB, 2 * GIB, 2 * GIB, 3 * GIB),
        Stretch(2, 1, "forward", 5 * GIB, 4 * GIB, 6 * GIB, 7 * GIB),
        Stretch(2, 1, "backward", (8 + rank) * GIB, 4 * GIB, 10 * GIB, 11 * GIB),
        Stretch(2, 0, "optimizer_step", 6 * GIB, 4 * GIB, 10 * GIB, 12 * GIB),
    )
    steps = tuple(StepSample(number + 3, each, 0.1, 1000) for number, each in enumerate(seconds))
    return ProbedRank(
        rank=rank, device="NVIDIA H100", memory=memory, steps=steps, host_peak_bytes=GIB, overlap=(Overlap(1.5, 0.5, 0.2, 2.0),)
    )


PROBE = Probe(
    outcome="completed", reason="", made="2026-01-01T00:00:00Z", command=("fullstep", "probe"), seed=7, model="gpt2", parameters=100,
    trainable_parameters=100, worksheet={}, environment={"device": "NVIDIA H100", "versions": {"torch": "2.13"}},
    ranks=(_rank(0, (1.0, 2.0, 4.0)), _rank(1, (1.5, 1.0, 1.0))), world_size=2, notes=("sdpa attention in place of flash",),
)  # fmt: skip
LINES = (
    BesideLine("instants", "forward", "bytes", 5 * GIB, Bounds.exact(5.05 * GIB), 5 * GIB),
    BesideLine("instants", "backward", "bytes", 9 * GIB, Bounds.exact(9.9 * GIB), None),
)


BESIDE = Beside(LINES, Bounds(1.0, 2.0, 3.0), 0.412)


def text(probe: Probe = PROBE, beside: Beside = BESIDE) -> str:
    return " ".join(probe_text(SETTINGS, probe, beside, Paper()).split())


def test_what_was_measured_stands_beside_what_was_said() -> None:
    found = text()
    assert "The probe completed: 2 ranks on NVIDIA H100." in found
    assert "forward 5.000 5.000 (+0.0%) 5.050 (+1.0%)" in found
    assert "backward 9.000 - 9.900 (+10.0%!)" in found  # 9.9 / 9 - 1, and further off than 3 %
    assert "Reserved 10.00 GiB at most on any rank" in found and "Device 12.00 GiB at most" in found
    assert "sdpa attention in place of flash" in found


def test_a_difference_that_rounds_to_nothing_has_no_minus() -> None:
    line = BesideLine("instants", "forward", "bytes", 3 * 2**20, Bounds.exact(3 * 2**20 - 100), None)
    assert "forward 3.000 - 3.000 (+0.0%)" in text(beside=Beside((line,), None, None))


def test_a_machine_that_was_busy_is_told() -> None:
    busy = "in the minute before, other programs kept 1.5 of 2 cores busy on average or waited for them"
    assert f"Busy {busy}" in text(replace(PROBE, environment={**PROBE.environment, "busy": [busy]}))
    assert "Busy" not in text()


def test_times_are_those_of_the_slowest_rank() -> None:
    """Steps of 1.5, 2 and 4 s with 2,000 tokens each; the second rank waited 0.3 of 3.5 s for data."""
    found = text()
    assert "2.000 s (median of 3; 1.500 to 4.000) · 800 tokens/s in all · data 8.6% · MFU 41.2% · estimated 1.000 to 3.000 s" in found
    assert "communication that is not hidden takes 10.0% of a step" in found


def test_the_course_of_the_worst_rank() -> None:
    assert "Allocated in the course of step 2, peak at: micro-batch 1 of 1, backward 9.0 GiB" in text()


def test_memory_that_ran_out() -> None:
    ran_out = OutOfMemory(1, 2, "backward", GIB, 70 * GIB, 75 * GIB, 80 * GIB)
    found = text(
        replace(PROBE, outcome="out_of_memory", reason="rank 1 in backward of step 2", out_of_memory=ran_out, ranks=()),
        Beside((), None, None),
    )
    assert "RAN OUT OF MEMORY (2 ranks on NVIDIA H100): rank 1 in backward of step 2." in found
    assert "rank 1 in backward of step 2: 1.00 GiB was asked for · 70.00 GiB allocated · 75.00 GiB reserved · 80.00 GiB limit" in found
    assert "Enough at least 71.00 GiB at that instant" in found


def test_the_stretch_in_which_memory_ran_out_is_not_compared() -> None:
    """It did not come to its peak; the others did. What would have been enough is not known of a limit that counts more than tensors."""
    ran_out = OutOfMemory(0, 2, "backward", GIB, 8 * GIB, None, 20 * GIB)
    probe = replace(PROBE, outcome="out_of_memory", reason="", out_of_memory=ran_out, environment={"device": "cpu", "versions": {}})
    found = text(probe)
    assert "backward 9.000 - 9.900 (ran out)" in found and "forward 5.000 5.000 (+0.0%) 5.050 (+1.0%)" in found
    assert "Enough" not in found


def test_what_ranks_wrote_last_stands_behind_a_bar() -> None:
    environment = {**PROBE.environment, "last_lines": ["line 1", "It fits"]}
    probe = replace(PROBE, outcome="rank_died", reason="rank 1 stopped", environment=environment)
    assert probe_text(SETTINGS, probe, BESIDE, Paper()).rstrip().endswith("  It wrote\n    | line 1\n    | It fits")


def test_an_evaluation_takes_as_long_as_its_slowest_rank() -> None:
    ranks = tuple(replace(rank, evaluation_seconds=seconds) for rank, seconds in zip(PROBE.ranks, (0.03, 0.08), strict=True))
    assert "Evaluation one micro-batch in 0.08 s" in text(replace(PROBE, ranks=ranks))


@pytest.mark.parametrize(("unseen", "told"), [(9 * GIB // 200, False), (GIB, True)])
def test_releases_that_were_not_seen_are_told_where_they_matter(unseen: int, told: bool) -> None:
    probe = replace(PROBE, environment={**PROBE.environment, "released_unseen_bytes": unseen})
    assert ("threads of gloo released up to" in text(probe)) is told


def test_no_record_of_any_rank() -> None:
    died = replace(PROBE, outcome="rank_died", reason="rank 1 was killed by SIGKILL", ranks=())
    assert "A rank DIED (2 ranks on NVIDIA H100): rank 1 was killed by SIGKILL." in text(died, Beside((), None, None))
