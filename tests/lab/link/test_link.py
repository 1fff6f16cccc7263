"""Real ranks: a whole measurement by the command, and one whose rank is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from fullstep.errors import LabError
from fullstep.lab.link import Wanted, measure_link
from fullstep.lab.link.front import measured
from fullstep.lab.ranks.tree import Tree, started
from fullstep.ledger.link import LINK_COLLECTIVES

pytestmark = pytest.mark.real_classes
FULLSTEP = Path(sys.executable).with_name("fullstep")


def test_two_ranks_of_this_machine() -> None:
    command = [str(FULLSTEP), "link", "--cpu", "2", "--sizes", "4KiB,256KiB", "--iterations", "3", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["schema"]) == ("fullstep link", 1)
    assert found["environment"]["backend"] == "gloo"
    assert found["environment"]["ranks"] == 2
    samples = {(each["collective"], each["size_bytes"]): each["seconds"] for each in found["samples"]}
    there = [each["collective"] for each in found["summary"] if each["missing"] is None]
    assert {"all_reduce", "all_gather", "send"} <= set(there) <= set(LINK_COLLECTIVES)
    assert list(samples) == [(name, size) for name in there for size in (4096, 262144)]
    assert all(len(seconds) == 3 and 0 < min(seconds) < max(seconds) < 10 for seconds in samples.values())
    for each in found["summary"]:
        for size in each["sizes"]:
            middle = sorted(samples[each["collective"], size["size_bytes"]])[1]
            assert size["median_seconds"] == middle
            factor = {"all_reduce": 1, "all_gather": 0.5, "reduce_scatter": 0.5, "send": 1}[each["collective"]]
            assert size["bus_bytes_per_second"] == pytest.approx(factor * size["size_bytes"] / middle)


def test_two_nodes_of_one_rank_each() -> None:
    """Two commands on this machine that find each other: the first one tells of both."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(FULLSTEP), "link", "--cpu", "1", "--sizes", "4KiB", "--iterations", "2", "--json", "--nodes", "2"]
    ends = [[*words, "--node-rank", str(rank), "--rendezvous", f"127.0.0.1:{port}"] for rank in range(2)]
    nodes = [subprocess.Popen(end, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for end in ends]
    (first, errors), (second, said) = (node.communicate() for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], errors
    found = json.loads(first)
    assert (found["environment"]["ranks"], found["environment"]["nodes"]) == (2, 2)
    assert {len(each["seconds"]) for each in found["samples"]} == {2}
    assert (second, b"node 0 tells of all" in said) == (b"", True)


def test_a_rank_that_is_killed_ends_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    trees: list[Tree] = []

    @contextmanager
    def noticed(*arguments: Any, **options: Any) -> Iterator[Tree]:
        with started(*arguments, **options) as tree:
            trees.append(tree)
            yield tree

    def kill(stage: str) -> None:
        if stage.startswith("all_reduce of"):
            os.kill(max(trees[0].family.known), signal.SIGKILL)

    monkeypatch.setattr(measured, "started", noticed)
    with pytest.raises(LabError, match="the link's ranks"):
        measure_link(Wanted(device="cpu", ranks=2, sizes_bytes=(4096,), iterations=1_000_000, silent_seconds=60.0), kill)
    assert trees[0].family.left() == set()
