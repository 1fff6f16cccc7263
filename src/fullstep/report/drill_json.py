"""A drill as one JSON object: what was measured, what was predicted beside it, and what it ran on."""

from __future__ import annotations

from typing import Any

from fullstep import __version__
from fullstep.job import Settings
from fullstep.ledger.drill import Drill, DrillElsewhere, DrillLoad
from fullstep.report.json import finite


def drill_as_dict(settings: Settings, drill: Drill, command: list[str]) -> dict[str, Any]:
    """Sizes in bytes, times in seconds.

    Args:
        settings: of the worksheet as it was drilled
        drill: what was seen
        command: that made it, as it was typed
    """
    found: dict[str, Any] = finite({
        "schema": 1,
        "fullstep": __version__,
        "evidence": "measured",
        "verdict": drill.verdict,
        "reason": drill.reason or None,
        "saved": {
            **drill.save._asdict(), "seconds_until_published": drill.save.published_seconds,
            "first_of_process": drill.warm_up._asdict(), "staging_host_bytes": drill.staging_bytes,
            "staging_host_bytes_kept": drill.staging_kept_bytes,
        },
        "loaded": _load(drill.load),
        "failure_to_first_step": {"seconds": drill.restart.seconds, "parts": dict(drill.restart.parts)},
        "raw": {"bytes": drill.raw_bytes, "write_seconds": drill.raw_write_seconds, "read_seconds": drill.raw_read_seconds},
        "step_seconds": drill.step_seconds,
        "predicted": _predicted(drill),
        "elsewhere": None if drill.elsewhere is None else _elsewhere(drill.elsewhere),
        "export": None if drill.export is None else {**drill.export._asdict(), "differing": list(drill.export.differing)},
        "checks": [check._asdict() for check in drill.checks],
        "controls": [each._asdict() for each in drill.controls],
        "program": _program(settings, drill),
        "notes": list(drill.notes),
        "versions": dict(drill.versions),
        "command": command,
        "folder": drill.folder if drill.is_kept else None,
        "seconds": drill.seconds,
    })  # fmt: skip
    return found


def failed_as_dict(leg: str, what: str) -> dict[str, Any]:
    """Of a drill that ended before there was anything to compare."""
    return {"schema": 1, "fullstep": __version__, "evidence": "measured", "verdict": "failed", "reason": f"{leg}: {what}", "leg": leg}


def _load(load: DrillLoad) -> dict[str, Any]:
    return {**load._asdict(), "seconds": load.seconds}


def _predicted(drill: Drill) -> dict[str, Any] | None:
    """None: the formulas do not cover the model."""
    predicted = drill.predicted
    if predicted is None:
        return None
    return {
        "size_bytes": round(predicted.predicted_bytes),
        "measured_over_predicted_less_one": drill.size_difference,
        "files": predicted.files,
        "rates_of_storage": drill.predicted_with,
        "write_seconds": predicted.write_seconds,
        "stall_seconds": None if predicted.stall_seconds is None else predicted.stall_seconds._asdict(),
        "restore_seconds": predicted.restore_seconds,
        "staging_host_bytes": predicted.staging_host_bytes.as_whole(),
    }


def _elsewhere(elsewhere: DrillElsewhere) -> dict[str, Any]:
    differences = [{"state": kind, "largest": share, "tensor": tensor} for kind, share, tensor in elsewhere.differences]
    return {**elsewhere._asdict(), "differences": differences, "load": _load(elsewhere.load)}


def _program(settings: Settings, drill: Drill) -> dict[str, Any]:
    blocks = drill.blocks
    return {
        "model": drill.model, "device": drill.device, "ranks": drill.ranks, "strategy": drill.strategy, "mode": drill.save.mode,
        "saved_at_step": drill.saved_at, "steps": drill.steps, "rows_per_step": drill.rows_per_step,
        "blocks": None if blocks is None else blocks[0], "blocks_of_model": None if blocks is None else blocks[1],
        "worksheet": settings.worksheet.as_dict(),
    }  # fmt: skip
