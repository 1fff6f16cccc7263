"""Stands in for torchrun and its ranks: says what it is told to, and leaves processes behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def on_second_node() -> None:
    for rank in (3, 2):
        say(rank=rank, process=os.getpid(), progress="training on the second node" if rank == 2 else "training as well")
        say(rank=rank, done=True)


_BEFORE_ANY_RANK = {
    "alone": lambda: time.sleep(600),
    "port in use": lambda: sys.exit("torch.distributed.DistNetworkError: ... (errno: 98 - Address already in use)."),
    "second node": on_second_node,
}


def main(behaviour: str) -> None:
    if behaviour in _BEFORE_ANY_RANK:
        _BEFORE_ANY_RANK[behaviour]()
        return
    say(rank=0, process=os.getpid(), progress="training")
    say(rank=1, process=os.getpid(), progress="training as well")
    if behaviour == "saver":  # outlives its rank in a session of its own, as a saving process does
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    if behaviour in ("good", "saver", "never ends"):
        say(rank=0, done=True)
        say(rank=1, done=True)
    if behaviour == "early":  # the other one waits for it
        say(rank=0, done=True, early=True)
        say(rank=1, crash="RuntimeError: connection closed by peer")
    if behaviour == "half":
        say(rank=0, done=True)
        sys.exit(3)
    if behaviour == "killed":
        account = "Root Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n"
        account += f"  traceback : Signal 9 (SIGKILL) received by PID {os.getpid()}"
        print(account, file=sys.stderr, flush=True)
        sys.exit(1)
    if behaviour == "loses its launcher":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "babbles":
        print("hello", flush=True)
    if behaviour == "faults":
        say(rank=1, unsupported=[["method.kind", "refused", "full", ""]])
    if behaviour == "crashes":
        say(rank=1, crash="ValueError: no", traceback="line 1\nline 2")
    if behaviour == "failed":
        say(rank=0, failed="the checkpoint is damaged")
    if behaviour != "good":
        time.sleep(600)


if __name__ == "__main__":  # the collector of doctests imports every file
    main(sys.argv[1])
