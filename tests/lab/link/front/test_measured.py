"""What ranks do to a measurement: they hang, they die, they leave records. They are stood in for by a program without torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fullstep.errors import LabError
from fullstep.lab.link import Wanted, measure_link
from fullstep.lab.ranks import tree
from fullstep.lab.ranks.nodes import Nodes
from fullstep.lab.ranks.processes import processes_with

WANTED = Wanted(device="cpu", ranks=2, sizes_bytes=(8,), iterations=2, silent_seconds=1.0, versions=(("torch", "2.13"),))
SAYS = """
import json, os, sys, time
from pathlib import Path
task = json.loads(Path(sys.argv[1]).read_text())
def say(**message):
    print(json.dumps(message), flush=True)
say(rank=0, process=os.getpid(), progress="send of 8 B")
"""
LEAVES_RECORDS = """
for rank in range(2):
    record = {"rank": rank, "device": "cpu", "backend": "gloo", "versions": {}, "missing": {"reduce_scatter": "no"},
              "samples": [["send", 8, [1.0 + rank, 2.0 - rank]]]}
    Path(task["records"], f"rank{rank}.json").write_text(json.dumps(record))
    say(rank=rank, done=True)
"""


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, behaviour: str) -> None:
    """Instead of torchrun a program that does this."""
    (tmp_path / "rank.py").write_text(SAYS + behaviour)

    def command(ranks: int, worker: str, task: Path, nodes: Nodes) -> Sequence[str]:
        return [sys.executable, str(tmp_path / "rank.py"), str(task)]

    monkeypatch.setattr(tree, "command", command)
    monkeypatch.setenv("LINK_TEST", str(tmp_path))


def test_each_call_counts_by_its_slowest_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, LEAVES_RECORDS)
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    stages: list[str] = []
    found = measure_link(WANTED, stages.append)
    assert [each.seconds for each in found.samples] == [(2.0, 2.0)]
    assert (found.backend, found.ranks, dict(found.missing)) == ("gloo", 2, {"reduce_scatter": "no"})
    assert (found.versions["torch"], found.settings) == ("2.13", {"NCCL_ALGO": "Ring"})
    assert stages == ["starting 2 ranks", "send of 8 B"]
    assert found.made.endswith("+00:00")


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("time.sleep(600)", 'said nothing for 1 s and was stopped; last stage: "send of 8 B"'),
        ("sys.exit(3)", r"ended before its work was done \(exit code 3\)"),
        ('say(rank=1, crash="all_reduce on 2 ranks brought wrong numbers"); time.sleep(600)', "rank 1 of .* brought wrong numbers"),
    ],
)
def test_what_goes_wrong_is_said_and_nothing_is_left(
    behaviour: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    pretend(monkeypatch, tmp_path, behaviour)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(tree, "_ACCOUNT_SECONDS", 0.1)
    with pytest.raises(LabError, match=message):
        measure_link(WANTED)
    assert processes_with(f"LINK_TEST={tmp_path}") in ([], None)
    assert list(tmp_path.glob("fullstep-link-*")) == []


def test_the_folder_of_one_that_was_killed_goes_with_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, tmp_path, LEAVES_RECORDS)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "fullstep-link-left"
    left.mkdir()
    (left / ".here").touch()
    os.utime(left / ".here", (0, 0))
    assert measure_link(WANTED) is not None
    assert list(tmp_path.glob("fullstep-link-*")) == []
