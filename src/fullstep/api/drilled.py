"""A drill of one worksheet: what it proved, with what was predicted of its checkpoints beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from fullstep.api.checkpoints import checkpoint_of
from fullstep.api.devices import gpus_that_torch_sees
from fullstep.api.drill_room import require_room
from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.job import Settings, Worksheet, settings_of
from fullstep.job.editing import edit
from fullstep.lab.drill import Elsewhere, Wanted, faults_of, notes_of, require_place, run_drill
from fullstep.lab.libraries import require_libraries
from fullstep.ledger import Checkpoint
from fullstep.ledger.drill import Drill
from fullstep.models import model_config
from fullstep.models.shorten import shortened_config
from fullstep.quantities import GB

Mode = Literal["sync", "thread", "process"]
Progress = Callable[[str], None]
SILENT_SECONDS = 600.0


class Drilled(NamedTuple):
    """A drill, and what was drilled."""

    settings: Settings
    """of the worksheet as it was drilled"""
    drill: Drill


def drill(
    worksheet: Worksheet, to: str, *, cpu: int | None = None, ranks_after: int | None = None, after: Mapping[str, Any] | None = None,
    mode: Mode | None = None, export: bool = False, layers: int | None = None, tokens: int | None = None, keep_files: bool = False,
    silent_seconds: float = SILENT_SECONDS, progress: Progress = lambda _: None,
) -> Drilled:  # fmt: skip
    """Trains, saves, kills, and resumes in new processes; proves that the training goes on as if nothing had happened, or says where not.

    Args:
        worksheet: what is trained; weights are random, nothing is downloaded
        to: folder, or URL that fsspec reaches; the drill makes a folder of its own in it
        cpu: ranks on processors; None: every GPU that torch sees
        ranks_after: resume on so many ranks as well
        after: keys of the worksheet's section ``layout`` for that
        mode: of saving; None: as the worksheet says
        export: also write a full export and read it back
        layers: drill so many blocks of the model
        tokens: of a row, in place of ``batch.sequence_tokens``
        keep_files: leave the checkpoints there
        silent_seconds: without a sign of life, after which a rank counts as hanging
        progress: is told the stages as they come

    Raises:
        InputError: the worksheet or another argument is at fault, or (UnsupportedError) cannot be drilled
        DrillFailedError: a checkpoint was not made, or does not come back
        LabError: a process died or hung
    """
    versions = require_libraries("drill")
    require_place(to)
    sheet, blocks = _changed(worksheet, layers, tokens)
    device, ranks = ("cpu", cpu) if cpu is not None else ("cuda", gpus_that_torch_sees("drill"))
    if ranks < 1:
        raise InputError(Fault("--cpu", f"found {ranks}", "at least 1"))
    sheet = edit(sheet, {"machine.gpus": ranks, "machine.nodes": 1})
    settings = settings_of(sheet)
    elsewhere = _elsewhere(sheet, settings, None if device == "cpu" else ranks, ranks_after, dict(after or {}))
    _require_drillable(sheet, settings, *([elsewhere.settings] if elsewhere else []))
    saving = mode or (settings.checkpoint.async_mode if settings.checkpoint.asynchronous else "sync")
    sheet = edit(sheet, {"checkpoint.asynchronous": saving != "sync", "checkpoint.async_mode": None if saving == "sync" else saving})
    config, name = model_config(sheet.section("model"))
    wanted = Wanted(
        settings=settings, worksheet=sheet.as_dict(), config=config, model=_name(worksheet, name), device=device, ranks=ranks, to=to,
        mode=saving, elsewhere=elsewhere, exports=export, keeps_files=keep_files, silent_seconds=silent_seconds,
        notes=tuple(notes_of(settings, device)), versions=versions, blocks=blocks,
    )  # fmt: skip
    predicted = _predicted(sheet)
    require_room(wanted, predicted)
    return Drilled(settings, _with_prediction(sheet, run_drill(wanted, progress), predicted))


def _require_drillable(sheet: Worksheet, *layouts: Settings) -> None:
    """In each of the layouts; faults are told with their place in the worksheet's file."""
    faults = dict.fromkeys(fault for settings in layouts for fault in faults_of(settings))
    if faults:
        raise UnsupportedError(*(Fault(sheet.where(fault.where), fault.found, fault.allowed, fault.remedy) for fault in faults))


def _with_prediction(sheet: Worksheet, seen: Drill, predicted: Checkpoint | None) -> Drill:
    """Times of it with the rates that were measured, where the worksheet states none."""
    rates = {} if predicted is None else _measured_rates(sheet, seen)
    if rates:
        return replace(seen, predicted_with="measured", predicted=_predicted(edit(sheet, rates)))
    return replace(seen, predicted=predicted)


def _changed(worksheet: Worksheet, layers: int | None, tokens: int | None) -> tuple[Worksheet, tuple[int, int] | None]:
    """The worksheet with fewer blocks or shorter rows, where that is asked for."""
    changes: dict[str, Any] = {}
    blocks = None
    if tokens is not None:
        changes["batch.sequence_tokens"] = tokens
    if layers is not None:
        config, _ = model_config(worksheet.section("model"))
        shorter, whole = shortened_config(config, layers)
        changes["model.config"] = shorter
        blocks = (layers, whole)
    return (edit(worksheet, changes) if changes else worksheet), blocks


def _name(worksheet: Worksheet, name: str) -> str:
    return str(worksheet.section("model").get("name") or name)


def _elsewhere(sheet: Worksheet, settings: Settings, most: int | None, ranks_after: int | None, after: dict[str, Any]) -> Elsewhere | None:
    """The same training on other ranks (at most so many) or in another layout; rows of a step stay as they are."""
    if ranks_after is None and not after:
        return None
    others = [key for key in after if not key.startswith("layout.")]
    if others:
        found = f"{', '.join(others)}, which makes another training"
        raise InputError(Fault("--after", found, "keys of the section layout", "For example --after layout.strategy=ddp."))
    there = settings.layout.data_parallel if ranks_after is None else ranks_after
    _require_ranks(sheet, settings, there, most)
    changes: dict[str, Any] = {"machine.gpus": there, "layout.shards": None, "batch.global_rows": None, "batch.accumulation": None, **after}
    if "layout.strategy" not in after:
        one = settings.layout.strategy if there > 1 else "single"
        changes["layout.strategy"] = "fsdp" if one == "single" and there > 1 else one
    moved = edit(sheet, changes)
    return Elsewhere(moved.as_dict(), settings_of(moved), there)


def _require_ranks(sheet: Worksheet, settings: Settings, there: int, most: int | None) -> None:
    """As many as there are GPUs for, and each with the same part of a step's rows."""
    rows = settings.rows_per_step
    if most is not None and there > most:
        allowed = f"1 to {most}, the GPUs that torch sees"
        raise InputError(Fault("--ranks-after", f"found {there}", allowed, f"--cpu {settings.layout.data_parallel} drills on processors."))
    if there >= 1 and rows % there == 0:
        return
    remedy = "For example --ranks-after 1."
    if there > 1:
        by_rows = sheet.stated("batch.global_rows") is not None
        remedy = f"For example --set batch.{f'global_rows={rows * there}' if by_rows else f'accumulation={there}'}."
    raise InputError(Fault("--ranks-after", f"found {there}", f"a divisor of the {rows} rows of a step", remedy))


def _predicted(sheet: Worksheet) -> Checkpoint | None:
    try:
        return checkpoint_of(sheet, "distributed")
    except UnsupportedError:
        return None


def _measured_rates(sheet: Worksheet, seen: Drill) -> dict[str, float]:
    """Rates of storage that the worksheet leaves open, as this disk gave them to raw writers and readers."""
    rates = {"machine.storage_write_gb_s": seen.raw_write_seconds, "machine.storage_read_gb_s": seen.raw_read_seconds}
    return {key: seen.raw_bytes / seconds / GB for key, seconds in rates.items() if sheet.stated(key) is None}
