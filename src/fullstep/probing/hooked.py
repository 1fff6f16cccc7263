"""The watch over a whole program, which knows nothing of it: begun where the program has imported torch, by an import hook."""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fullstep.probing.lines import COUNTER, FOLDER, STEPS, enough_path, how_many_have_enough
from fullstep.probing.memory import CountedMemory, Memory
from fullstep.probing.watch import WATCHING, Watch

_WAIT_SECONDS = 20.0
"""for the other ranks of this machine: the last exchange with them has to be over on both sides"""


def begin() -> None:
    """Looks until the program ends.

    Raises:
        KeyError, OSError: nothing says where lines go
    """
    steps = os.environ.get(STEPS)
    watch = Watch(Path(os.environ[FOLDER]), steps=int(steps) if steps else None, enough=leave, memory=_counted())
    watch.begin()
    atexit.register(watch.end)


def leave() -> None:
    """Ends the program well once the other ranks of this machine have come as far; its clean-ups, which could wait, are left out."""
    watch = WATCHING[-1]
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    watch.end({"end": "enough"})
    with suppress(OSError):
        enough_path(watch.folder, os.getpid()).touch()
    until = time.monotonic() + _WAIT_SECONDS
    while how_many_have_enough(watch.folder) < _ranks_here() and time.monotonic() < until:
        time.sleep(0.01)
    os._exit(0)


def _ranks_here() -> int:
    with suppress(KeyError, ValueError):
        return int(os.environ["LOCAL_WORLD_SIZE"])
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return int(torch.distributed.get_world_size()) if there else 1


def _counted() -> Memory | None:
    """Its file is loaded by itself: the package that it lies in needs more than a training has to have installed."""
    path = os.environ.get(COUNTER)
    spec = None if not path else importlib.util.spec_from_file_location("_fullstep_counters", path)
    if spec is None or spec.loader is None:
        return None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return CountedMemory(module.ProcessorCounter())
