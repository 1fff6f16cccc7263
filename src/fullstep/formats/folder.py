"""Checkpoints in a folder, for the tools that start on machines with a file system of their own."""

from __future__ import annotations

from fullstep.errors import Fault, InputError
from fullstep.formats.launch import Launch


def checkpoint_folder(launch: Launch) -> str | None:
    """The folder as stated; None: none is stated.

    Raises:
        InputError: it is a bucket, or no absolute path
    """
    folder = launch.checkpoints
    if folder is None or folder.startswith("/"):
        return folder
    remedy = "A bucket has to be mounted before."
    raise InputError(Fault("--checkpoints", f'"{folder[:60]}"', "an absolute path that all nodes share", remedy))
