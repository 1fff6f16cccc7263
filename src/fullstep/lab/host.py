"""The machine that an experiment runs on, as its system tells of it."""

from __future__ import annotations

import os
from contextlib import suppress

from fullstep.quantities import counted

_BUSY = 0.5
"""cores"""


def host_memory_bytes() -> int | None:
    """Of the whole machine; None: the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def busy_notes(ranks: int) -> list[str]:
    """Where ranks on processors wait for one another's cores, or for those of other programs. Asked before any of them runs.

    Args:
        ranks: on this machine
    """
    cores, notes = os.cpu_count() or ranks, []
    if ranks > cores:
        notes.append(f"{ranks} ranks on {counted(cores, 'core')} take turns: times are those of waiting as well")
    with suppress(AttributeError, OSError):
        load = os.getloadavg()[0]
        if load > _BUSY:
            of = counted(cores, "core")
            notes.append(f"in the minute before, other programs kept {load:.1f} of {of} busy on average or waited for them")
    return notes
