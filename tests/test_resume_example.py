"""The example of docs/resume.md: stopped by SIGTERM, it goes on with the losses that it would have had."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_classes

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/resume_training.py"
START = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", EXAMPLE]
STEPS, STOPPED_AFTER = 24, 12
_LINE = re.compile(r"step (\d+) loss (\S+)")


def started(folder: Path, *more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*START, str(folder), f"--steps={STEPS}", *more]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def losses(output: str) -> dict[int, str]:
    return {int(step): loss for step, loss in _LINE.findall(output)}


def test_stopped_and_started_again(tmp_path: Path) -> None:
    whole, errors = (run := started(tmp_path / "whole")).communicate(timeout=300)
    assert run.returncode == 0, errors
    expected = losses(whole)
    assert list(expected) == list(range(1, STEPS + 1)) and len(set(expected.values())) == STEPS

    run = started(tmp_path / "stopped", "--step-seconds=0.2")
    assert run.stdout is not None
    said = ""
    while STOPPED_AFTER not in losses(said):
        line = run.stdout.readline()
        assert line, run.communicate(timeout=60)[1]
        said += line
    run.send_signal(signal.SIGTERM)
    rest, errors = run.communicate(timeout=120)
    before = losses(said + rest)
    assert run.returncode == 1 and "SignalException" in errors and "asked to stop" in errors
    assert STOPPED_AFTER <= max(before) < STEPS

    after, errors = (run := started(tmp_path / "stopped")).communicate(timeout=300)
    assert run.returncode == 0, errors
    assert list(losses(after)) == list(range(max(before) + 1, STEPS + 1))
    assert before | losses(after) == expected


def test_the_page_shows_the_example_s_lines() -> None:
    page, example = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/resume.md", EXAMPLE))
    assert EXAMPLE in page
    (shown,) = re.findall(r"<!-- example:begin -->\n```python\n(.*?)```\n<!-- example:end -->", page, flags=re.DOTALL)
    assert textwrap.indent(shown, " " * 4) in example
