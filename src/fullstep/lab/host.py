"""The machine that an experiment runs on, as its system tells of it."""

from __future__ import annotations

import os


def host_memory_bytes() -> int | None:
    """Of the whole machine; None: the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
