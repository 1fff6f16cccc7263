"""Imports torch, then forks a training for each request on its input. See processes.py."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import faulty

_IMPORTED = (
    "torch", "torch.distributed.fsdp", "torch.distributed.tensor", "torch._dynamo", "torch.nn.parallel", "torch.distributed.checkpoint",
    "numpy", "fullstep.resume.checkpoints", "training",
)  # fmt: skip
_DIES_WITH_ITS_PARENT, _ADOPTS_ORPHANS = 1, 36
if __name__ == "__mp_main__":  # a process that saves for a trainer
    faulty.install()


def main() -> None:
    """Until the input ends."""
    _process_control(_DIES_WITH_ITS_PARENT, signal.SIGKILL)
    _process_control(_ADOPTS_ORPHANS, 1)
    for name in _IMPORTED:
        import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    codes: dict[int, int] = {}
    for line in sys.stdin:
        question = json.loads(line)
        _reap(codes)
        if "start" in question:
            answer: Any = [_forked(question["start"], rank) for rank in range(max(1, question["start"]["ranks"]))]
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
    if wanted["ranks"]:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(wanted["ranks"]))
        os.environ["INIT_METHOD"] = f"file://{wanted['store']}"
    import_module("training").main(wanted["given"])
    sys.exit(0)  # as Python ends: threads are waited for, and what is registered runs


if __name__ == "__main__":
    main()
