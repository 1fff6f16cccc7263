"""What the records say about sizes and times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fullstep.lab.drill.front.seen import Seen
from fullstep.lab.drill.leg import Record
from fullstep.ledger.drill import DrillExport, DrillLoad, DrillRestart, DrillSave

_STAGES = (
    ("start of the processes", "entered"), ("imports", "imported"), ("process group", "joined"), ("building the model", "built"),
    ("loading the checkpoint", "loaded"), ("first step", "first_step"),
)  # fmt: skip


def save_of(saving: Seen, index: int, undisturbed: Seen) -> DrillSave:
    """One save of a training, by its number."""
    first = saving.ranks[0]["saves"][index]
    return DrillSave(
        mode=first["mode"], step=first["step"], size_bytes=first["bytes"], files=first["files"],
        stall_seconds=saving.worst("saves", index, "stall_seconds"),
        published_seconds=max(_published_seconds(rank["saves"][index]) for rank in saving.ranks),
        state_seconds=saving.worst("saves", index, "state_seconds"), digest_seconds=saving.worst("saves", index, "digest_seconds"),
        slowed_seconds=_slowed_seconds(saving, first["step"], undisturbed) if first["mode"] != "sync" and index else 0.0,
    )  # fmt: skip


def _published_seconds(save: dict[str, float]) -> float:
    """Collecting and staging, then writing beside the training or, in mode sync, before it goes on."""
    if save["mode"] == "sync":  # type: ignore[comparison-overlap]
        return save["stall_seconds"]
    return save["stall_seconds"] + save["write_seconds"]


def _slowed_seconds(saving: Seen, step: int, undisturbed: Seen) -> float:
    """Steps after the save against the same ones of a training that does not save."""
    later = [number for number in saving.steps if number > step]
    return max(0.0, sum(saving.steps[number].seconds - undisturbed.steps[number].seconds for number in later))


def usual_step_seconds(undisturbed: Seen) -> float:
    """Median of all steps but the first, which warms up."""
    return statistics.median(step.seconds for number, step in undisturbed.steps.items() if number > 1)


def load_of(resumed: Seen) -> DrillLoad:
    """The load with which a training began."""
    loaded = resumed.ranks[0]["loaded"]
    return DrillLoad(
        ranks_saved=loaded["ranks"], size_bytes=loaded["bytes"], rng=loaded["rng"],
        verify_seconds=resumed.worst("loaded", "verify_seconds"), load_seconds=resumed.worst("loaded", "load_seconds"),
        apply_seconds=resumed.worst("loaded", "apply_seconds"),
    )  # fmt: skip


def restart_of(records: Sequence[Record], failed_at: float, killed_seconds: float, started_at: float) -> DrillRestart:
    """From the failure to the end of the first step, each stage of the slowest rank; what the drill itself looked at is left out.

    >>> clock = {"entered": 12.0, "imported": 14.0, "joined": 14.5, "built": 15.0, "loaded": 17.0, "first_step": 20.0}
    >>> records = [{"clock": clock, "runs": [{"checked_seconds": 1.0}]}]
    >>> dict(restart_of(records, 10.0, 0.25, 10.25).parts)["first step"], restart_of(records, 10.0, 0.25, 10.25).seconds
    (2.0, 9.0)
    """
    parts = [("end of the old processes", max(started_at - failed_at, killed_seconds))]
    before = failed_at + parts[0][1]
    checked = max(record["runs"][0]["checked_seconds"] for record in records)
    for what, stage in _STAGES:
        at = max(record["clock"][stage] for record in records)
        parts.append((what, max(at - before - (checked if stage == "first_step" else 0.0), 0.0)))
        before = at
    return DrillRestart(tuple(parts))


def raw_of(records: Sequence[Record]) -> tuple[int, float, float]:
    """(bytes, seconds to write, seconds to read) of all ranks together."""
    raw = records[0]["raw"]
    return int(raw["bytes"]), raw["write_seconds"], raw["read_seconds"]


def staging_of(saving: Seen) -> tuple[int | None, int | None]:
    """(at most, what stays) of host memory that the first save took, over all ranks."""
    before, most, after = (saving.total("memory", f"{when}_bytes") for when in ("before", "most", "after"))
    if before is None or most is None or after is None:
        return None, None
    return max(most - before, 0), max(after - before, 0)


def export_of(records: Sequence[Record]) -> DrillExport | None:
    """The full export, where one was made."""
    found = records[0].get("export")
    if found is None:
        return None
    return DrillExport(
        size_bytes=found["bytes"], files=found["files"], seconds=max(record["export"]["seconds"] for record in records),
        tensors=found["tensors"], differing=tuple(found["differing"]),
    )  # fmt: skip
