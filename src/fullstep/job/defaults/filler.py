"""Where defaults are taken, noted as assumptions, and faults and cautions collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fullstep.errors import Fault
from fullstep.evidence import Assumption
from fullstep.job.cautions import CAUTIONS
from fullstep.job.worksheet import Worksheet

Part = TypeVar("Part")
RANK_KEYS = (
    "machine.gpus", "machine.nodes", "layout.strategy", "layout.tensor", "layout.pipeline", "layout.context",
)  # fmt: skip
"""what the number of data-parallel ranks hangs on"""
_unstated: dict[Any, tuple[Any, list[Assumption]]] = {}


class Filler:
    """One worksheet on its way to a job, with what other defaults hang on once it is settled."""

    __slots__ = (
        "assumptions",
        "cautions",
        "faults",
        "faulty",
        "framework",
        "full",
        "implementation",
        "strategy",
        "transformers",
        "uncovered",
        "worksheet",
    )

    def __init__(self, worksheet: Worksheet, faulty: frozenset[str] = frozenset()) -> None:
        self.worksheet = worksheet
        self.faulty = faulty
        """keys and sections that were stated but could not be read: they have their defaults, which say nothing"""
        self.assumptions: list[Assumption] = []
        self.cautions: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.uncovered: list[Fault] = []
        """sound, but not covered by the formulas"""
        self.framework = self.strategy = self.implementation = ""
        self.transformers: tuple[int, ...] | None = None
        """version of transformers; None for a framework with models of its own"""
        self.full = True
        """every weight is trained, not an adapter"""

    def take(self, values: Mapping[str, Any], name: str, dotted: str, default: Any, why: str) -> Any:
        """The stated value, else the default with a note of it."""
        if name in values:
            return values[name]
        self.assumptions.append(tuple.__new__(Assumption, (dotted, default, why)))  # half the time of calling the class
        return default

    def fault(self, dotted: str, found: str, allowed: str, remedy: str = "", beside: tuple[str, ...] = ()) -> None:
        """A combination that cannot be.

        Args:
            dotted: the key
            found: what it says
            allowed: what it may say
            remedy: what to do
            beside: the other keys that the combination hangs on; where one of them could not be read, there is no telling
        """
        if not (self.faulty and self.is_faulty(dotted, *beside)):
            self.faults.append(Fault(self.worksheet.where(dotted), found, allowed, remedy))

    def is_faulty(self, *keys: str) -> bool:
        """One of these keys was stated but could not be read."""
        return any(key in self.faulty or key.partition(".")[0] in self.faulty for key in keys)

    def not_covered(self, dotted: str, found: str, allowed: str, remedy: str) -> None:
        """A sound setting that the formulas do not cover."""
        self.uncovered.append(Fault(self.worksheet.where(dotted), found, allowed, remedy))

    def caution(self, code: str, text: str) -> None:
        """Something allowed that somebody should know."""
        assert code in CAUTIONS
        self.cautions.append((code, text))

    def section(self, name: str, make: Callable[[Filler, Mapping[str, Any]], Part]) -> Part:
        """A section that hangs on no other one; what it is when nothing of it is stated is worked out once."""
        values = self.worksheet.section(name)
        if values:
            return make(self, values)
        kept = _unstated.get(make)
        if kept is None:
            alone = Filler(Worksheet())
            kept = _unstated[make] = make(alone, {}), alone.assumptions
        self.assumptions += kept[1]
        part: Part = kept[0]
        return part
