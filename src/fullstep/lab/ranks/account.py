"""Torchrun's account of the rank that died first, in what it writes to standard error."""

from __future__ import annotations

import re
from typing import NamedTuple

_KILLED = re.compile(r"rank +: (\d+) \(local_rank[^[]*?Signal \d+ \((\w+)\) received by PID")
_FIRST_FAILURE = "Root Cause"


class Killed(NamedTuple):
    """A rank that a signal ended."""

    rank: int
    signal: str
    """its name"""


def first_killed(text: str) -> Killed | None:
    """The rank that died first; None: no signal ended it, or torchrun does not say.

    >>> first_killed("Root Cause: rank      : 1 (local_rank: 1) exitcode  : -9 (pid: 7) traceback : Signal 9 (SIGKILL) received by PID 7")
    Killed(rank=1, signal='SIGKILL')
    """
    found = _KILLED.search(text.rpartition(_FIRST_FAILURE)[2])
    return None if found is None else Killed(int(found[1]), found[2])
