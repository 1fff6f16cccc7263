"""Folders and URLs that a command will write into, looked at before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

from fullstep.errors import Fault

_ALLOWED = "a folder or a URL"


def fault_of_place(option: str, where: str) -> Fault | None:
    """Why a folder cannot be made or written, as far as that is known beforehand; None: nothing is known against it, or none is asked for.

    Args:
        option: of the command line, for the message
        where: a folder of this machine, or a URL that fsspec reaches; empty: none

    Raises:
        InputError: a URL of a kind that nothing here reaches
    """
    if "://" in where:
        from fullstep.formats.probe_record.places import folder_at  # noqa: PLC0415 (only a URL pays for it)

        folder_at(where)
    elif where:
        if not where.strip() or "\0" in where:
            return Fault(option, "an empty name" if not where.strip() else "a name that no file has", _ALLOWED)
        try:
            there = next(path for path in (Path(where).absolute(), *Path(where).absolute().parents) if path.exists())
        except OSError as error:  # a name that no system takes
            return Fault(option, f'"{where[:80]}": {error.strerror}', _ALLOWED)
        if not (there.is_dir() and os.access(there, os.W_OK)):
            return Fault(option, f'"{where[:80]}": {there} is no folder that can be written', _ALLOWED)
    return None
