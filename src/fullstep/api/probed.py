"""A probe of one worksheet: real steps here, beside its estimate and its trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from fullstep.api.devices import gpus_that_torch_sees
from fullstep.api.traced import Subject, subject_of, trace_subject
from fullstep.calibration import measured_utilization
from fullstep.calibration.residuals import BesideLine, instant_lines
from fullstep.errors import Fault, InputError, LabError, UnsupportedError
from fullstep.hardware import device_overheads
from fullstep.job import Job, Settings, Worksheet, settings_of
from fullstep.job.editing import edit
from fullstep.lab.host import busy_notes
from fullstep.lab.libraries import require_libraries
from fullstep.lab.probe import COUNTED, Wanted, faults_of, notes_of, run_probe
from fullstep.lab.ranks.nodes import ONE_NODE, Nodes
from fullstep.ledger import Answer
from fullstep.ledger.probe import Probe
from fullstep.models import model_config
from fullstep.quantities import GIB

SEED = 20_260_101
STEPS = 5
SILENT_SECONDS = 600.0
Progress = Callable[[str], None]


class Probed(NamedTuple):
    """A probe, and what was probed."""

    settings: Settings
    """of the worksheet as it was probed"""
    probe: Probe
    answer: Answer | None
    """the worksheet's own, traced where that was asked for; None: it could not be traced, or the formulas do not know the model"""
    lines: tuple[BesideLine, ...]
    """without what libraries of a GPU hold, where the probe ran on processors"""
    model_flops_utilization: float | None
    """by the card that the worksheet names; None: it names none, the formulas do not know the model, or the probe ran on processors"""


def probe(
    worksheet: Worksheet, *, cpu: int | None = None, steps: int = STEPS, weights: str = "", evaluate: bool = False, save_to: str = "",
    snapshot: str = "", limit_gib: float | None = None, seed: int = SEED, traces: bool = True, silent_seconds: float = SILENT_SECONDS,
    command: tuple[str, ...] = (), progress: Progress = lambda _: None, keep: Callable[[Probe], None] = lambda _: None,
    nodes: Nodes = ONE_NODE,
) -> Probed | None:  # fmt: skip
    """Builds the worksheet's program on real devices and runs real steps: the longest row first.

    Args:
        worksheet: what is trained; weights are random unless ``weights`` names some
        cpu: ranks on processors; None: every GPU that torch sees
        steps: of the optimizer; of the first two every instant's memory is told, the others are timed
        weights: folder or hub id of real weights
        evaluate: also one micro-batch of an evaluation
        save_to: folder or URL of a checkpoint that is written once; empty: none
        snapshot: file for the allocator's history, for PyTorch's memory viewer (GPUs alone)
        limit_gib: memory that may be allocated, as if a device had no more
        seed: of weights and rows
        traces: also trace the worksheet, to stand beside
        silent_seconds: without a sign of life, after which a rank counts as hanging
        command: that asked for it, for the record
        progress: is told the stages as they come
        keep: is given the record, also where a signal ends the probe
        nodes: on each of which the same is called, with as many ranks

    Returns:
        None: it completed, and this is not the first node, which tells of all

    Raises:
        InputError: the worksheet or another argument is at fault, or (UnsupportedError) cannot be probed
    """
    versions, busy = require_libraries("probe"), tuple(busy_notes(cpu or 1))
    _require(steps, cpu, limit_gib, snapshot, seed)
    device, ranks = ("cpu", cpu) if cpu is not None else ("cuda", gpus_that_torch_sees("probe"))
    sheet = edit(worksheet, {"machine.gpus": ranks, "machine.nodes": nodes.total})
    settings = settings_of(sheet)
    if faults := faults_of(settings):
        raise UnsupportedError(*(Fault(sheet.where(fault.where), fault.found, fault.allowed, fault.remedy) for fault in faults))
    config, name = model_config(sheet.section("model"))
    recorded = edit(sheet, {"model.config": config}) if isinstance(sheet.section("model").get("config"), str) else sheet
    wanted = Wanted(
        worksheet=recorded.as_dict(), config=config, model=str(sheet.section("model").get("name") or name), device=device, ranks=ranks,
        steps=steps, seed=seed, command=command, versions=versions, notes=tuple(notes_of(settings, device)), busy=busy, weights=weights,
        evaluates=evaluate, saves_to=save_to, snapshot=snapshot,
        limit_bytes=None if limit_gib is None else int(limit_gib * GIB), silent_seconds=silent_seconds, nodes=nodes,
    )  # fmt: skip
    subject = subject_of(sheet)
    answer = _said_before(sheet, subject, traces and nodes.rank == 0, progress)
    seen = run_probe(wanted, progress, keep)
    return None if seen is None else Probed(settings, seen, answer, tuple(_lines(settings, seen, answer)), _utilization(subject.job, seen))


def _utilization(job: Job | None, seen: Probe) -> float | None:
    seconds = seen.median_step_seconds
    if job is None or seconds is None or seen.environment.get("device") == "cpu":
        return None
    return measured_utilization(job, seconds)


def _require(steps: int, cpu: int | None, limit_gib: float | None, snapshot: str, seed: int) -> None:
    faults = []
    if not 0 <= seed < 2**32:
        faults.append(Fault("--seed", f"found {seed}", "0 to 4,294,967,295"))
    if snapshot and cpu is not None:
        faults.append(Fault("--snapshot", "beside --cpu", "GPUs: processors have no allocator that keeps a history"))
    if steps < COUNTED + 1:
        faults.append(Fault("--steps", f"found {steps}", f"at least {COUNTED + 1}: the first {COUNTED} are counted, the others are timed"))
    if cpu is not None and cpu < 1:
        faults.append(Fault("--cpu", f"found {cpu}", "at least 1"))
    if limit_gib is not None and not limit_gib > 0:
        faults.append(Fault("--limit-gib", f"found {limit_gib:g}", "more than 0"))
    if faults:
        raise InputError(*faults)


def _said_before(sheet: Worksheet, subject: Subject, traces: bool, progress: Progress) -> Answer | None:
    """What estimate and trace say; a worksheet that they do not cover can be probed nonetheless."""
    if traces:
        with suppress(UnsupportedError, LabError):
            return trace_subject(subject, progress=lambda stage: progress(f"tracing: {stage}"))
    if subject.job is None:
        return None
    from fullstep.api.answer import estimate  # noqa: PLC0415 - a trace has one of its own

    return estimate(sheet)


def _lines(settings: Settings, seen: Probe, answer: Answer | None) -> list[BesideLine]:
    worst = seen.worst
    if worst is None:
        return []
    workspace = float(device_overheads(settings.machine.card).cublas_workspace_bytes) if worst.device == "cpu" else 0.0
    if answer is None:
        return instant_lines(worst, None, None, workspace)
    return instant_lines(worst, answer.memory if answer.trace is None else answer.estimated, answer.trace, workspace)
