"""Imports torch, then forks a training for each request on its input. See processes.py."""

from __future__ import annotations

import atexit
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))
import faulty

_IMPORTED = [
    "torch", "torch.distributed.fsdp", "torch.distributed.tensor", "torch._dynamo", "torch.nn.parallel", "torch.distributed.checkpoint",
    "numpy", "fullstep.resume.checkpoints", "fullstep.resume.order",
]  # fmt: skip
_DIES_WITH_ITS_PARENT, _ADOPTS_ORPHANS = 1, 36
_FAULTS = "--faults="
if __name__ == "__mp_main__":  # a process that saves for a trainer: of its surroundings it has the trainer's arguments
    os.environ["FAULTS"] = next((each.removeprefix(_FAULTS) for each in sys.argv if each.startswith(_FAULTS)), "{}")
    faulty.install()


def main() -> None:
    """Until the input ends."""
    _process_control(_DIES_WITH_ITS_PARENT, signal.SIGKILL)
    _process_control(_ADOPTS_ORPHANS, 1)
    for name in [*_IMPORTED, "training"]:
        import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    codes: dict[int, int] = {}
    for line in sys.stdin:
        question = json.loads(line)
        _reap(codes)
        if "start" in question:
            wanted = question["start"]
            if wanted["forks_savers"]:
                _prepare_savers()
            answer: Any = [_forked(wanted, rank) for rank in range(max(1, wanted["ranks"]))]
        elif "stays" in question:
            servers = (getattr(forkserver._forkserver, "_forkserver_pid", None), resource_tracker._resource_tracker._pid)
            answer = [pid for pid in servers if pid]
        else:
            answer = {pid: codes[pid] for pid in question["ended"] if pid in codes}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _process_control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _reap(codes: dict[int, int]) -> None:
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        pass


def _prepare_savers() -> None:
    """A server that has imported torch, too: torch itself starts a saving process from nothing, which takes many seconds."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_IMPORTED)
    forkserver.ensure_running()


def _fork_savers() -> None:
    import torch.multiprocessing  # noqa: PLC0415 - it is there

    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    torch.multiprocessing.get_context = lambda _: multiprocessing.get_context("forkserver")


def _forked(wanted: dict[str, Any], rank: int) -> int:
    child = os.fork()
    if child:
        return child
    _process_control(_DIES_WITH_ITS_PARENT, signal.SIGKILL)
    os.setsid()
    with Path(wanted["log"]).open("ab", buffering=0) as log, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ["FAULTS"] = json.dumps(wanted["faults"])
    sys.argv.append(_FAULTS + os.environ["FAULTS"])
    if wanted["forks_savers"]:
        _fork_savers()
    if wanted["ranks"]:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(wanted["ranks"]))
        os.environ["INIT_METHOD"] = f"file://{wanted['store']}"
    code = 0
    try:
        import_module("training").main(wanted["given"])
    except BaseException:
        traceback.print_exc()
        code = 1
    return _end(code)


def _end(code: int) -> NoReturn:
    """As Python ends: threads are waited for, then what is registered runs. Then it would take all modules apart, for seconds."""
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    main()
