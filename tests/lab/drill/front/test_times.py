"""Times and sizes of a leg from the records of its ranks: always the slowest rank's."""

from __future__ import annotations

from typing import Any

from fullstep.lab.drill.front.seen import seen_of
from fullstep.lab.drill.front.times import export_of, load_of, raw_of, save_of, staging_of, usual_step_seconds


def save(step: int, mode: str, stall: float) -> dict[str, Any]:
    return {
        "step": step, "mode": mode, "bytes": 1000, "files": 3, "stall_seconds": stall, "write_seconds": 2.0, "state_seconds": 0.1,
        "digest_seconds": 0.2, "published": True,
    }  # fmt: skip


def record(rank: int, mode: str, seconds: float = 1.0) -> dict[str, Any]:
    """Of a training of five steps; the later of its two saves is slower on rank 1."""
    steps = {str(n): {"losses": [float(n)], "rates": [0.1], "rows": [n], "seconds": seconds + (9 if n == 1 else 0)} for n in range(1, 6)}
    memory = {"before_bytes": 100, "most_bytes": 130 + rank, "after_bytes": 90 if rank else 120}
    run = {
        "name": "saving", "steps": steps, "digests": {}, "saves": [save(1, mode, 5.0), save(3, mode, 0.5 + rank)], "memory": memory,
        "loaded": {"ranks": 2, "bytes": 1000, "rng": "restored", "verify_seconds": 1 + rank, "load_seconds": 2 - rank, "apply_seconds": 0},
    }  # fmt: skip
    return {"runs": [run], "raw": {"bytes": 2000.0, "write_seconds": 0.5, "read_seconds": 0.25}}


def test_a_save_is_that_of_the_slowest_rank() -> None:
    records = [record(0, "thread", seconds=1.5), record(1, "thread", seconds=1.25)]
    undisturbed = seen_of([record(0, "thread")])["saving"]
    found = save_of(seen_of(records)["saving"], -1, undisturbed)
    assert (found.step, found.size_bytes, found.files, found.stall_seconds, found.published_seconds) == (3, 1000, 3, 1.5, 3.5)
    assert found.slowed_seconds == 2 * 0.5
    assert save_of(seen_of(records)["saving"], 0, undisturbed).stall_seconds == 5.0
    synchronous = save_of(seen_of([record(0, "sync", seconds=2.0)])["saving"], -1, undisturbed)
    assert (synchronous.published_seconds, synchronous.slowed_seconds) == (0.5, 0.0)


def test_the_rest_of_a_leg() -> None:
    records = [record(0, "sync"), record(1, "sync")]
    seen = seen_of(records)["saving"]
    assert usual_step_seconds(seen) == 1.0
    assert load_of(seen)[2:5] == (2, 2, 0)
    assert raw_of(records) == (2000, 0.5, 0.25)
    assert staging_of(seen) == (61, 10)
    assert export_of(records) is None
    records[0]["runs"][0]["memory"]["most_bytes"] = None
    assert staging_of(seen_of(records)["saving"]) == (None, None)
