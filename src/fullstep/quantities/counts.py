"""Numbers of things, for people."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """A number with its noun, whose plural ends in s.

    >>> counted(1, "rank"), counted(1024, "row")
    ('1 rank', '1,024 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"
