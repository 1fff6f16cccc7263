"""An answer with what others measured: records of the same worksheet replace its figures, those of near ones narrow its bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from fullstep.api.answer import answer_of
from fullstep.api.search import plan
from fullstep.calibration.evidence import Records, Used, UsedOf
from fullstep.calibration.narrowing import OF_MEMORY
from fullstep.calibration.recorded import recorded
from fullstep.calibration.residuals import BesideLine, beside
from fullstep.calibration.shelf import Refused, Shelf
from fullstep.errors import Fault, InputError, LabError
from fullstep.formats.probe_record import read_all
from fullstep.job import Job
from fullstep.job.worksheet import Worksheet
from fullstep.ledger import Answer, MemoryEstimate
from fullstep.ledger.probe import Probe
from fullstep.physics import estimate_memory
from fullstep.physics.network.required import EXPOSED_SHARE
from fullstep.physics.timing.step import step_time

if TYPE_CHECKING:
    from fullstep.plan.renting import Renter
    from fullstep.plan.search import Plan
    from fullstep.plan.trial import Trial


class Evidenced(NamedTuple):
    """An answer, and what became of each record."""

    job: Job
    """with the figures that were measured"""
    answer: Answer
    used: tuple[Used, ...]
    refused: Refused
    faults: tuple[Fault, ...]
    """of files that are no records"""


def shelf_at(where: str, worksheet: Worksheet) -> tuple[Shelf, tuple[Fault, ...]]:
    """The records of a folder, and what is wrong with files that are none.

    Args:
        where: a record, a folder of records, or a URL that fsspec reaches
        worksheet: of the one who asks

    Raises:
        InputError: nothing can be read there
    """
    stored = read_all(where)
    probes = [(each.name, each.probe) for each in stored if each.probe is not None]
    links = [(each.name, each.link) for each in stored if each.link is not None]
    return Shelf(probes, links, worksheet), tuple(fault for each in stored for fault in each.faults)


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
    shelf, faults = shelf_at(where, job.worksheet)
    judged = shelf.of(job)
    return Evidenced(judged.job, answer_of(judged.job, exposed_share, renter), judged.used, judged.refused, faults)


def plan_with_evidence(
    worksheet: Worksheet, where: str, *, trace: bool = False, progress: Callable[[str], None] | None = None, renter: Renter | None = None
) -> tuple[Plan, Records[UsedOf]]:
    """A plan, each of whose options has what records say of it.

    Args:
        worksheet: its own ``[measured]`` figures outrank the records'
        where: a record, a folder of records, or a URL that fsspec reaches
        trace: as of ``api.search.plan``
        progress: likewise
        renter: likewise

    Raises:
        InputError: nothing can be read there, or the worksheet is at fault
    """
    shelf, faults = shelf_at(where, worksheet)
    found = plan(worksheet, trace=trace, progress=progress, renter=renter, judge=lambda job: shelf.of(job).job)
    options = found.options or [found.shown]
    counts: dict[str, Counter[str]] = {}
    first: dict[str, Trial] = {}
    for option in options:
        idle = _idle(option, shelf)
        for name, kind in option.job.from_records.used:
            counts.setdefault(name, Counter())[kind] += name not in idle
            first.setdefault(name, option)
    used = []
    for name, count in counts.items():
        why = next((each.match.why for each in shelf.again(first[name].job).used if each.name == name), "")
        used.append(UsedOf(name, count["same"], count["near"], count["link"], len(options), why))
    refused = tuple(pair for pair in shelf.again(found.shown.job).refused if pair[0] not in counts)
    return found, Records(used, refused, faults)


def _idle(option: Trial, shelf: Shelf) -> set[str]:
    """Near records that narrow nothing of an option: its memory was traced, and they say nothing of its time."""
    if option.answer.trace is None or not any(kind == "near" for _, kind in option.job.from_records.used):
        return set()
    near = [each for each in shelf.again(option.job).used if each.match.kind == "near"]
    return {each.name for each in near if not any(one.place is not None and one.what not in OF_MEMORY for one in each.residuals)}


def beside_itself(name: str, probe: Probe, *, traces: bool = False) -> list[BesideLine]:
    """A probe beside its own estimate, and where that is asked for its own trace. No model of it is looked up.

    Args:
        name: of its file, for messages
        probe: as read
        traces: also trace its worksheet

    Raises:
        InputError: its worksheet is not one that the formulas know
    """
    record = recorded(name, probe, Worksheet())
    if isinstance(record, str):
        raise InputError(Fault(name, record, "a completed record of a worksheet that the formulas cover"))
    return beside(record, estimate_memory(record.job), step_time(record.job), _trace_of(record.job) if traces else None)


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
