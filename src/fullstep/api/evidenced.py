"""An answer with what others measured: records of the same worksheet replace its figures, those of near ones narrow its bounds."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from fullstep.api.answer import answer_of
from fullstep.calibration.evidence import Used
from fullstep.calibration.recorded import recorded
from fullstep.calibration.residuals import BesideLine, beside
from fullstep.calibration.shelf import Refused, Shelf
from fullstep.errors import Fault, InputError, LabError
from fullstep.formats.probe_record import read_all, read_one
from fullstep.job import Job
from fullstep.job.worksheet import Worksheet
from fullstep.ledger import Answer, MemoryEstimate
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
    return Shelf(probes, worksheet), tuple(fault for each in stored for fault in each.faults)


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
