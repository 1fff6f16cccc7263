"""What can go wrong.

FullstepError
├── InputError            the input is at fault; exit code 2; carries every fault found, not just the first
│   └── UnsupportedError  the input is sound, but it is not covered; names the way out
├── LabError              an experiment's process died, hung, crashed or made no sense; exit code 4; says at which stage
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


class LabError(FullstepError):
    """An experiment did not end as it should, which says nothing about its input.

    Args:
        what: died, in words, and at which stage
        remedy: what to do
        details: the last lines that the process wrote; they follow the message
    """

    def __init__(self, what: str, *, remedy: str = "", details: tuple[str, ...] = ()) -> None:
        self.what, self.remedy, self.details = printable(what), remedy, tuple(printable(line) for line in details)
        message = f"{self.what}. {remedy}" if remedy else self.what
        super().__init__("\n".join((message, *(f"  | {line}" for line in self.details))))


__all__ = ["Fault", "FullstepError", "InputError", "KeyTwiceError", "LabError", "UnsupportedError", "printable", "unique_keys"]
