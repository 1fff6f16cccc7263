"""What can go wrong.

FullstepError
├── InputError            the input is at fault; exit code 2; carries every fault found, not just the first
│   └── UnsupportedError  the input is sound, but the formulas do not cover it; names the way out
└── (anything else is a fault of ours; exit code 1)
"""

from __future__ import annotations

from dataclasses import dataclass

from fullstep.errors.json_keys import KeyTwiceError, unique_keys
from fullstep.errors.printable import printable


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an input: where, what was found, what is allowed, what to do."""

    where: str
    """file, line and key as far as they are known, for example ``job.toml:12: layout.strategy``"""
    found: str
    allowed: str
    remedy: str = ""

    def __str__(self) -> str:
        """In one line that is safe to print, whatever the input was."""
        text = f"{self.where}: {self.found}; allowed: {self.allowed}" if self.allowed else f"{self.where}: {self.found}"
        return printable(f"{text}. {self.remedy}" if self.remedy else text)


class FullstepError(Exception):
    """Any error that fullstep raises on purpose."""


class InputError(FullstepError):
    """The input is at fault. ``faults`` holds all of it."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        super().__init__("\n".join(str(fault) for fault in faults))


class UnsupportedError(InputError):
    """The input is sound but not covered; the fault's remedy names the way out."""


__all__ = ["Fault", "FullstepError", "InputError", "KeyTwiceError", "UnsupportedError", "printable", "unique_keys"]
