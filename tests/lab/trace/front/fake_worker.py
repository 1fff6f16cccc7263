"""Stands in for the worker: the name of the model in the request says how it behaves. Not a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HOLDINGS = (
    "weights", "gradients", "optimizer_states", "activations", "logits_and_loss", "gathered_parameters", "temporaries", "buffers",
)  # fmt: skip
TRACE = {
    "parameters": 1000, "trainable_parameters": 10, "peak_at": "backward", "allocated_peak_bytes": 4096,
    "reserved_peak_bytes": 2097152, "host_bytes": 0, "timeline": [], "largest": [], "modules": [], "flops_per_step": 7, "blocks": 2,
    "blocks_traced": 2, "operations": 9, "segments": 1, "out_of_memory": "", "notes": [], "versions": [["torch", "2.13.0"]],
    "seconds": 1.5, "instants": [{"at": "backward", "holdings": {**dict.fromkeys(HOLDINGS, 0), "weights": 4096}, "place": "block 1"}],
}  # fmt: skip
FAULT = {"where": "worksheet: layout.pipeline", "found": "2, which a trace does not cover", "allowed": "1", "remedy": "Use fsdp."}


def say(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def say_pids() -> None:
    """Its own, and that of a process that it started and forgot, which holds the worker's output open."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    say(progress=f"{os.getpid()} {child.pid}")


def end(name: str) -> None:
    """Ends without an answer, or not at all."""
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "killed in the middle of a line":
        sys.stdout.write('{"trace": {"parameters": 1')
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "killed with a child":
        say_pids()
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "segmentation fault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif name == "exits":
        sys.stderr.write("Traceback\nImportError: no module named torch\x1b[31m\n")
        sys.exit(3)
    elif name == "says nothing":
        sys.exit(0)
    elif name == "loud and dead":
        sys.stderr.writelines(f"warning {number}\n" for number in range(100_000))
        sys.exit(1)
    elif name == "closes its output":
        os.close(1)
        time.sleep(60)
    elif name == "hangs":
        say_pids()
        time.sleep(60)


def babble(name: str) -> None:
    """Says what is no message."""
    if name == "garbage":
        sys.stdout.write("Loading checkpoint shards: 100%\n")
    elif name == "garbage bytes":
        sys.stdout.buffer.write(b"\xff\xfe\x00\n")
    while name == "endless line":
        sys.stdout.write("x" * 2**20)


ANSWERS: dict[str, dict[str, object]] = {
    "wrong table": {"answer": 42},
    "wrong trace": {"trace": {**TRACE, "blocks": "two"}},
    "faults": {"faults": [FAULT, {**FAULT, "where": "model config: hidden_size"}]},
    "unsupported": {"unsupported": [FAULT]},
    "no faults": {"faults": []},
    "crash": {"crash": "RuntimeError: shapes\ndo not match", "traceback": "Traceback:\n  line 1\nRuntimeError"},
    "no snapshot": {"trace": TRACE},
}


def work(request: dict[str, Any]) -> None:
    """Answers as the name asks for, or as it should."""
    name, snapshot = request["name"], request["snapshot"]
    end(name)
    babble(name)
    if name in ANSWERS:
        say(**ANSWERS[name])
        return
    if name == "loud":
        sys.stderr.writelines(f"warning {number}: {'x' * 100}\n" for number in range(200_000))
    say(progress="building the model")
    say(progress="tracing block 1 of 2")
    if snapshot is not None:
        seen = {"request": request, "environment": dict(os.environ)}
        Path(snapshot).write_text(json.dumps(seen) if name == "echo" else "a snapshot")
    say(trace=TRACE)
    if name == "crashes at exit":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "does not end":
        time.sleep(60)


if __name__ == "__main__":
    work(json.load(sys.stdin))
