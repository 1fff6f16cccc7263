"""How a value that is not allowed is described, and which spelling is nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fullstep.errors import printable


class Refused(Exception):  # noqa: N818 - not an error of its own: it becomes a Fault
    """A value that its key does not allow."""

    def __init__(self, found: str, allowed: str, remedy: str = "") -> None:
        super().__init__(found)
        self.found, self.allowed, self.remedy = found, allowed, remedy


def describe(value: object) -> str:
    """What was found, short and safe to print whatever it is.

    >>> describe("ful"), describe(True), describe([1, 2]), describe(10**5000)
    ('"ful"', 'true', 'a list of 2', 'a number of more than 40 digits')
    """
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value.bit_length() < 130 else "a number of more than 40 digits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        shown = value if len(value) <= 60 else value[:57] + "…"
        return f'"{printable(shown)}"'
    if isinstance(value, Mapping):
        return f"a table of {len(value)} keys"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return f"a {type(value).__name__}"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A remedy that names the nearest spelling, or nothing.

    >>> did_you_mean("micro_batches", ["micro_batch", "accumulation"])
    'Did you mean "micro_batch"?'
    """
    found = nearest(word, known)
    return f'Did you mean "{found}"?' if found else ""


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The nearest spelling among the known ones, if any is near.

    >>> nearest("modle", ["model", "machine"]), nearest("x", ["model"])
    ('model', None)
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only a wrong word pays for it

    return next(iter(get_close_matches(word[:60].lower(), known, 1, 0.6)), None)
