"""An answer with what others measured: records of the same worksheet replace its figures, those of near ones narrow its bounds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fullstep.api.answer import Correction, answer_of
from fullstep.calibration import compare_with_pilot, outrank
from fullstep.calibration.evidence import Residual, Used, measured_of, narrow_memory, narrow_step, places_of, residuals_of
from fullstep.calibration.recorded import Match, Recorded, match, recorded
from fullstep.calibration.residuals import BesideLine, beside
from fullstep.errors import Fault, InputError, LabError
from fullstep.evidence import Assumption
from fullstep.formats.probe_record import read_all, read_one
from fullstep.job import Job, complete, edit
from fullstep.job.worksheet import Worksheet
from fullstep.ledger import Answer, Caution, MemoryEstimate
from fullstep.ledger.probe import Probe
from fullstep.physics import estimate_memory
from fullstep.physics.network.required import EXPOSED_SHARE
from fullstep.physics.timing.step import step_time

if TYPE_CHECKING:
    from fullstep.plan.renting import Renter


class Evidenced(NamedTuple):
    """An answer, and what became of each record."""

    job: Job
    """with the figures that were measured"""
    answer: Answer
    used: tuple[Used, ...]
    refused: tuple[tuple[str, str], ...]
    """record and why"""
    faults: tuple[Fault, ...]
    """of files that are no records"""


def estimate_with_evidence(job: Job, where: str, exposed_share: float = EXPOSED_SHARE, renter: Renter | None = None) -> Evidenced:
    """The answer to a completed job with the records of a folder.

    Args:
        job: its own ``[measured]`` figures outrank the records'
        where: a record, a folder of records, or a URL that fsspec reaches
        exposed_share: of the step, that communication may take on the network that is asked for
        renter: for prices

    Raises:
        InputError: nothing can be read there
    """
    stored = read_all(where)
    judged: list[tuple[Recorded, Match]] = []
    refused: list[tuple[str, str]] = []
    for name, probe in sorted(((each.name, each.probe) for each in stored if each.probe), key=lambda pair: pair[1].made, reverse=True):
        record = recorded(name, probe, job.worksheet)
        found = Match("refused", record) if isinstance(record, str) else match(record, job)
        if isinstance(record, str) or found.kind == "refused":
            refused.append((name, found.why))
        else:
            judged.append((record, found))
    faults = tuple(fault for each in stored for fault in each.faults)
    same = sorted((pair for pair in judged if pair[1].kind == "same"), key=lambda pair: pair[0].on_processors)  # of GPUs first, the newest
    while same:
        (best, found), *same = same
        try:
            answered = _with_same(job, best, found, exposed_share, renter)
        except InputError as error:
            refused.append((best.name, str(error.faults[0])))
            continue
        refused += [(each.name, f"{best.name} outranks it: of this very worksheet, and newer or of a GPU") for each, _ in same]
        refused += [(each.name, f"{best.name} is of this very worksheet") for each, other in judged if other.kind == "near"]
        return Evidenced(*answered, (Used(best.name, found, (), best.probe.notes),), tuple(refused), faults)
    judged = [pair for pair in judged if pair[1].kind == "near"]
    used = tuple(Used(record.name, found, _residuals(record), record.probe.notes) for record, found in judged)
    return Evidenced(job, _with_near(job, used, exposed_share, renter), used, tuple(refused), faults)


def beside_itself(where: str, worksheet: Worksheet | None = None, *, traces: bool = False) -> tuple[str, Probe, list[BesideLine]]:
    """A record beside its own estimate, and where that is asked for its own trace.

    Args:
        where: of the record
        worksheet: by whose model name one may be looked up; None: only models that come along
        traces: also trace its worksheet

    Raises:
        InputError: it is no record, or its worksheet is not one that the formulas know
    """
    name, probe = read_one(where)
    record = recorded(name, probe, worksheet or Worksheet())
    if isinstance(record, str):
        raise InputError(Fault(name, record, "a completed record of a worksheet that the formulas cover"))
    return name, probe, beside(record, estimate_memory(record.job), step_time(record.job), _trace_of(record.job) if traces else None)


def _trace_of(job: Job) -> MemoryEstimate | None:
    from fullstep.api.traced import subject_of  # noqa: PLC0415 - few ask for it
    from fullstep.calibration.trace import outrank_with_trace  # noqa: PLC0415
    from fullstep.lab.trace import trace_step  # noqa: PLC0415
    from fullstep.models import model_config  # noqa: PLC0415

    with suppress(LabError):
        subject = subject_of(job.worksheet)
        config, name = model_config(job.worksheet.section("model"))
        return outrank_with_trace(trace_step(subject.settings, config, name), job, estimate_memory(job))
    return None


def _residuals(record: Recorded) -> tuple[Residual, ...]:
    return residuals_of(record, estimate_memory(record.job), step_time(record.job))


def _with_same(job: Job, record: Recorded, found: Match, exposed_share: float, renter: Renter | None) -> tuple[Job, Answer]:
    """Keys that the worksheet measured itself stay.

    Raises:
        InputError: no card of the worksheet's can have given such figures
    """
    figures = {key: value for key, value in measured_of(record, job.machine.card).items() if key not in job.measured}
    why = tuple(Assumption(f"measured.{key}", value, f"record {record.name}: {found.why}") for key, value in figures.items())
    if not record.on_processors:
        measured = complete(edit(job.worksheet, {f"measured.{key}": value for key, value in figures.items()}))
        return measured, answer_of(measured, exposed_share, renter, Correction(assumptions=why))
    correction = Correction(lambda estimate: outrank(estimate, figures), assumptions=why)
    answer = answer_of(job, exposed_share, renter, correction)
    if not figures:
        return job, answer
    compared = {**answer.measured, **compare_with_pilot(estimate_memory(job), figures)}
    return job, replace(answer, memory=replace(answer.memory, evidence="measured"), measured=compared)


def _with_near(job: Job, used: tuple[Used, ...], exposed_share: float, renter: Renter | None) -> Answer:
    if not used:
        return answer_of(job, exposed_share, renter)
    places = places_of([each for record in used for each in record.residuals])
    names = ", ".join(each.name for each in used)
    said = f"number of near records around which the bounds were narrowed: {names}"
    why = tuple(Assumption(f"evidence.{what}", len(found), said) for what, found in places.items())
    outside = tuple(
        Caution("F126", f"{each.name}: {residual.what} lies outside of the bounds of its own estimate, and narrows nothing")
        for each in used for residual in each.residuals if residual.place is None
    )  # fmt: skip
    correction = Correction(
        lambda estimate: narrow_memory(estimate, places), lambda step: narrow_step(step, places), assumptions=why, cautions=outside
    )
    return answer_of(job, exposed_share, renter, correction)
