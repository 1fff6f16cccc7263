"""What records of probes and links say of a job, beside its worksheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from fullstep.hardware.measured_line import MeasuredLine


class FromRecords(NamedTuple):
    """It stands in no worksheet and changes no formula."""

    places: Mapping[str, tuple[float, ...]] = {}
    """of each figure that near records measured, where they lie in the bounds of their own estimates: -1 low, 0 likely, 1 high"""
    allocated: Mapping[str, float] = {}
    """what the very program allocated on processors, under its key of ``[measured]`` [GiB]"""
    links: tuple[MeasuredLine, ...] = ()
    used: tuple[tuple[str, Literal["same", "near", "link"]], ...] = ()
    """names of the records, and what each is to the job"""


NO_RECORDS = FromRecords()
