"""Where results are kept for this user from run to run."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(room: str) -> Path | None:
    """``fullstep/ROOM`` in the user's cache folder; None where there is none or FULLSTEP_CACHE=off.

    Args:
        room: whose results they are, like ``traces``
    """
    if os.environ.get("FULLSTEP_CACHE", "").strip().lower() == "off":
        return None
    stated = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(stated) if stated and Path(stated).is_absolute() else Path.home() / ".cache"
    except (RuntimeError, ValueError):  # nobody's home
        return None
    return base / "fullstep" / room
