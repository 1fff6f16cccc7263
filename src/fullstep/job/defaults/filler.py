"""Where defaults are taken, noted as assumptions, and faults and cautions collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.errors import Fault
from fullstep.evidence import Assumption
from fullstep.job.cautions import CAUTIONS
from fullstep.job.worksheet import Worksheet


class Filler:
    """One worksheet on its way to a job."""

    __slots__ = ("assumptions", "cautions", "faults", "uncovered", "worksheet")

    def __init__(self, worksheet: Worksheet) -> None:
        self.worksheet = worksheet
        self.assumptions: list[Assumption] = []
        self.cautions: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.uncovered: list[Fault] = []
        """sound, but not covered by the formulas"""

    def take(self, values: Mapping[str, Any], name: str, dotted: str, default: Any, why: str) -> Any:
        """The stated value, else the default with a note of it."""
        if name in values:
            return values[name]
        self.assumptions.append(Assumption(dotted, default, why))
        return default

    def fault(self, dotted: str, found: str, allowed: str, remedy: str = "") -> None:
        """A combination that cannot be."""
        self.faults.append(Fault(self.worksheet.where(dotted), found, allowed, remedy))

    def not_covered(self, dotted: str, found: str, allowed: str, remedy: str) -> None:
        """A sound setting that the formulas do not cover."""
        self.uncovered.append(Fault(self.worksheet.where(dotted), found, allowed, remedy))

    def caution(self, code: str, text: str) -> None:
        """Something allowed that somebody should know."""
        assert code in CAUTIONS
        self.cautions.append((code, text))
