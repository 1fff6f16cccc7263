"""Two gloo ranks, each in a network namespace of its own, joined by a virtual link of a rate that a test sets.

The namespaces have no names: they exist as long as the two processes in them, and those end with the pipe to the tests. Nothing is left
behind, however the tests end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

RANK = Path(__file__).with_name("rank.py")
TOOLS = ("unshare", "nsenter", "ip", "tc")
INTERFACES = ("fullstep0", "fullstep1")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29_511
ETHERNET_BYTES, IP_AND_TCP_BYTES = 14, 20 + 32
"""headers of each packet that the interface counts; TCP with its time stamps"""
SEGMENT_BYTES = 1500 - IP_AND_TCP_BYTES
"""what TCP sends again at once where an acknowledgement is late, as on a busy machine"""
LIMIT = ("tbf", "burst", "200kb", "latency", "50ms", "rate")
TRIAL = f"ip link add {INTERFACES[0]} type veth peer name {INTERFACES[1]} && tc qdisc add dev {INTERFACES[0]} root {' '.join(LIMIT)} 1gbit"


class Outcome(NamedTuple):
    """What one command came to."""

    seconds: list[float]
    """of each run, of the rank that came last"""
    sent_bytes: list[float]
    """by each rank in all runs together, without headers and without what TCP sent twice"""


def why_no_link() -> str:
    """Why two namespaces cannot be joined here; empty where they can. Tried in a namespace that ends with the command."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found (iproute2, util-linux)"
    done = subprocess.run(["unshare", "--net", "sh", "-c", TRIAL], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no virtual link: {done.stderr.strip().splitlines()[-1]} (root is needed)"


class Link:
    """The two ranks and what joins them."""

    def __init__(self, stack: ExitStack) -> None:
        self._ranks = [self._started(stack, rank) for rank in range(2)]
        for rank in range(2):
            self._answer(rank)
        here, there = (f"{name} netns {process.pid}" for name, process in zip(INTERFACES, self._ranks, strict=True))
        _run(f"ip link add {here} type veth peer name {there}".split())
        for rank, (name, address) in enumerate(zip(INTERFACES, ADDRESSES, strict=True)):
            for command in ("ip link set lo up", f"ip addr add {address}/24 dev {name}", f"ip link set {name} up"):
                self._inside(rank, command)
        self._ask({"do": "join", "address": ADDRESSES[0], "port": PORT})

    @staticmethod
    def _started(stack: ExitStack, rank: int) -> subprocess.Popen[str]:
        command = ["unshare", "--net", sys.executable, str(RANK), str(rank), INTERFACES[rank]]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        )
        stack.callback(process.kill)
        return process

    def limit(self, gbit_s: float) -> None:
        """Both directions at a rate [Gbit/s]."""
        for rank, name in enumerate(INTERFACES):
            self._inside(rank, f"tc qdisc replace dev {name} root {' '.join(LIMIT)} {gbit_s * 1000:.0f}mbit")

    def run(self, **message: Any) -> Outcome:
        """One command of ``rank.py`` on both ranks."""
        begun = self._ask(message)
        assert all("begins" in answer for answer in begun)
        before = [self._counted(rank) for rank in range(2)]
        found = self._ask({})
        after = [self._counted(rank) for rank in range(2)]
        return Outcome(found[1]["seconds"], [end - start for start, end in zip(before, after, strict=True)])

    def _ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(json.dumps(message) + "\n")
            rank.stdin.flush()
        return [self._answer(rank) for rank in range(2)]

    def _answer(self, rank: int) -> dict[str, Any]:
        process = self._ranks[rank]
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            process.kill()
            raise RuntimeError(f"rank {rank} ended: {process.stderr.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _inside(self, rank: int, command: str) -> None:
        _run(["nsenter", "--target", str(self._ranks[rank].pid), "--net", *command.split()])

    def _counted(self, rank: int) -> float:
        """Bytes that the rank's interface has sent, less the headers of its packets and what TCP sent again."""
        counts = Path(f"/proc/{self._ranks[rank].pid}/net")
        names, values = (line.split() for line in (counts / "snmp").read_text(encoding="utf-8").splitlines() if line.startswith("Tcp:"))
        again_bytes = SEGMENT_BYTES * int(values[names.index("RetransSegs")])
        for line in (counts / "dev").read_text(encoding="utf-8").splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == INTERFACES[rank]:
                sent, packets = counters.split()[8:10]
                return float(sent) - (ETHERNET_BYTES + IP_AND_TCP_BYTES) * float(packets) - again_bytes
        raise RuntimeError(f"{INTERFACES[rank]} is gone")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)


@pytest.fixture(scope="session")
def link() -> Iterator[Link]:
    """Two ranks on a link; a test that needs it is skipped where there can be none."""
    reason = why_no_link()
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield Link(stack)
