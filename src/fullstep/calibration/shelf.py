"""Records, read once, and what they say of any job: of the very job in the place of what is estimated, of a near one within its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fullstep.calibration.evidence import Residual, Used, measured_of, places_of, residuals_of
from fullstep.calibration.links import Linked, LinkShelf, NamedLink
from fullstep.calibration.narrowing import SAID
from fullstep.calibration.recorded import Match, Recorded, match, recorded
from fullstep.calibration.residuals import beside
from fullstep.errors import InputError
from fullstep.evidence import Assumption
from fullstep.job import Job, Worksheet, complete, edit
from fullstep.job.from_records import NO_RECORDS, FromRecords
from fullstep.ledger.probe import Probe
from fullstep.physics import estimate_memory
from fullstep.physics.timing.step import step_time
from fullstep.quantities import GIB

Refused = tuple[tuple[str, str], ...]
"""record, and why it is of no use"""
_OUTSIDE = "F126"


class Judged(NamedTuple):
    """A job with what records say of it, and what became of each record."""

    job: Job
    used: tuple[Used, ...]
    refused: Refused


class Shelf:
    """Records of probes. What does not depend on the job that asks is worked out once."""

    def __init__(self, probes: Sequence[tuple[str, Probe]], links: Sequence[NamedLink], worksheet: Worksheet) -> None:
        """
        Args:
            probes: with the names of their files
            links: likewise
            worksheet: of the one who asks: a model of that name may be looked up for a record, as it is looked up for it anyway
        """
        newest = sorted(probes, key=lambda pair: pair[1].made, reverse=True)
        found = [(name, recorded(name, probe, worksheet)) for name, probe in newest]
        self._records = [each for _, each in found if isinstance(each, Recorded)]
        self._useless = tuple((name, each) for name, each in found if isinstance(each, str))
        self._residuals: dict[str, tuple[Residual, ...]] = {}
        self._kernels: dict[str, str] = {}
        self._links = LinkShelf(links, worksheet.stated("machine.network_gbit_s"))

    def of(self, job: Job) -> Judged:
        """The job with what the records say of it. Keys that its worksheet measured itself stay."""
        links = self._links.of(job)
        job = _with_links(job, links)
        seen = tuple(Used(name, Match("link", what)) for name, what in links.used)
        refused = [*self._useless, *links.refused]
        judged: list[tuple[Recorded, Match]] = []
        for record in self._records:
            found = match(record, job)
            if found.kind == "same" and record.on_processors and (why := self._why_of_processors(record)):
                found = Match("refused", why)
            if found.kind == "refused":
                refused.append((record.name, found.why))
            else:
                judged.append((record, found))
        near = [pair for pair in judged if pair[1].kind == "near"]
        same = [pair for pair in judged if pair[1].kind == "same"]
        same.sort(key=lambda pair: pair[0].on_processors)  # those of GPUs first, of these the newest
        while same:
            (best, found), *same = same
            try:
                told = _with_same(job, best, found)
            except InputError as error:
                refused.append((best.name, str(error.faults[0])))
                continue
            refused += [(each.name, f"{best.name} outranks it: of this very worksheet, and newer or of a GPU") for each, _ in same]
            refused += [(each.name, f"{best.name} is of this very worksheet") for each, _ in near]
            return Judged(told, (Used(best.name, found, (), best.probe.notes), *seen), tuple(refused))
        used = tuple(Used(record.name, found, self._residuals_of(record), record.probe.notes) for record, found in near)
        return Judged(_with_near(job, used) if used else job, (*used, *seen), tuple(refused))

    def again(self, job: Job) -> Judged:
        """The same of a job that was judged already."""
        return self.of(replace(job, from_records=NO_RECORDS, assumptions=(), cautions=()))

    def _why_of_processors(self, record: Recorded) -> str:
        """Empty: what it allocated is within what a GPU could; else the kernels that ran are not a GPU's."""
        if record.name not in self._kernels:
            peaks = [line for line in beside(record, estimate_memory(record.job), None) if line.group == "peaks" and not line.is_inside]
            self._kernels[record.name] = "".join(
                f"it ran on processors, and allocated {line.measured / GIB:.2f} GiB, outside of what is estimated of GPUs "
                f"({line.estimated.low / GIB:.2f}-{line.estimated.high / GIB:.2f}): kernels of processors are others"
                for line in peaks[:1] if line.estimated is not None
            )  # fmt: skip
        return self._kernels[record.name]

    def _residuals_of(self, record: Recorded) -> tuple[Residual, ...]:
        if record.name not in self._residuals:
            job = _with_links(record.job, self._links.of(record.job))
            self._residuals[record.name] = residuals_of(record, estimate_memory(job), step_time(job))
        return self._residuals[record.name]


def _with_links(job: Job, links: Linked) -> Job:
    if not links.used:
        return job
    told = FromRecords(links=links.lines, used=tuple((name, "link") for name, _ in links.used))
    return replace(job, from_records=told, assumptions=(*job.assumptions, *links.assumptions))


def _with_same(job: Job, record: Recorded, found: Match) -> Job:
    """
    Raises:
        InputError: no card of the worksheet's can have given such figures
    """
    figures = {key: value for key, value in measured_of(record, job.machine.card).items() if key not in job.measured}
    why = tuple(Assumption(f"measured.{key}", value, f"record {record.name}: {found.why}") for key, value in figures.items())
    allocated = figures if record.on_processors else {}
    told = job.from_records._replace(allocated=allocated, used=((record.name, "same"), *job.from_records.used))
    if not record.on_processors:
        stated = {f"measured.{key}": value for key, value in {**job.measured, **figures}.items()}
        measured = complete(edit(job.worksheet, stated))
        job = replace(job, measured=measured.measured, worksheet=measured.worksheet)
    return replace(job, from_records=told, assumptions=(*job.assumptions, *why))


def _with_near(job: Job, used: Sequence[Used]) -> Job:
    places = places_of([each for record in used for each in record.residuals])
    names = ", ".join(each.name for each in used)
    said = f"number of near records around which the bounds were narrowed: {names}"
    why = tuple(Assumption(f"{SAID}{what}", len(found), said) for what, found in places.items())
    outside = tuple(
        (_OUTSIDE, f"{each.name}: {residual.what} lies outside of the bounds of its own estimate, and narrows nothing")
        for each in used for residual in each.residuals if residual.place is None
    )  # fmt: skip
    known = job.from_records
    told = known._replace(places=places, used=(*((each.name, "near") for each in used), *known.used))
    return replace(job, from_records=told, assumptions=(*job.assumptions, *why), cautions=(*job.cautions, *outside))
