"""Launch files for tools that start machines and training on them, written from a completed worksheet.

A tool is one file: a function from :class:`Launch` to the files that the tool reads. Nothing is started here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fullstep.formats.dstack import dstack_files
from fullstep.formats.launch import Launch, LaunchFile, launch_from
from fullstep.formats.skypilot import skypilot_files
from fullstep.formats.slurm import slurm_files
from fullstep.formats.torchrun import torchrun_files

TOOLS: Mapping[str, Callable[[Launch], tuple[LaunchFile, ...]]] = {
    "skypilot": skypilot_files,
    "dstack": dstack_files,
    "slurm": slurm_files,
    "torchrun": torchrun_files,
}
"""what ``fullstep export --to`` allows, and who writes it"""

__all__ = ["TOOLS", "Launch", "LaunchFile", "launch_from"]
