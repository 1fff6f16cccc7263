"""The whole drill with real processes; what is left when a rank, or the drill itself, is killed; and the processes' order of ending."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_classes
FULLSTEP = Path(sys.executable).with_name("fullstep")
JOB = """
[model.config]
model_type = "llama"
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
vocab_size = 256
[precision]
weights = "float32"
[batch]
sequence_tokens = 32
micro_batch = 2
"""
"""bfloat16 arithmetic over float32 weights, by default"""
WORKER = "fullstep.lab.drill.worker"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Its records lie in a folder by which its ranks are told from others."""
    (tmp_path / "records").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "records"))
    (tmp_path / "job.toml").write_text(JOB)
    return [str(FULLSTEP), "drill", str(tmp_path / "job.toml"), "--to", str(tmp_path / "to"), "--cpu", "2"]


@pytest.fixture
def begun(job: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A drill whose two ranks have been started."""
    with subprocess.Popen(job, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while len(ranks_of(tmp_path)) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        yield process
        process.kill()


def ranks_of(folder: Path) -> list[int]:
    """Processes of ranks whose records lie in the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if WORKER.encode() in words and b"torch.distributed.run" not in words and words[-2].startswith(bytes(folder)):
            found.append(int(path.parent.name))
    return found


def wait_until_gone(folder: Path, seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while ranks_of(folder) and time.monotonic() < until:
        time.sleep(0.1)
    return not ranks_of(folder)


def test_a_drill_of_two_ranks_that_goes_on_with_one(job: list[str], tmp_path: Path) -> None:
    """What a drill that was killed has left beside its records goes as well."""
    left = tmp_path / "records" / "fullstep-drill-records-left"
    left.mkdir()
    (left / ".here").touch()
    os.utime(left / ".here", (0, 0))
    done = subprocess.run([*job, "--ranks-after", "1", "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "passed"
    assert [each["caught"] for each in found["controls"]] == [True] * 4
    assert {check["leg"] for check in found["checks"]} == {"uninterrupted", "resumed", "nothing left out", "elsewhere"}
    assert all(check["holds"] for check in found["checks"])
    assert abs(found["predicted"]["measured_over_predicted_less_one"]) < 0.01
    elsewhere = found["elsewhere"]
    assert elsewhere["ranks"] == 1
    assert elsewhere["loss_difference"] <= elsewhere["gate"] < elsewhere["mildest_fault"]
    parts = found["failure_to_first_step"]["parts"]
    assert abs(sum(parts.values()) - found["failure_to_first_step"]["seconds"]) < 1e-6
    assert parts["imports"] > 0.1
    assert found["saved"]["size_bytes"] > found["saved"]["files"] >= 4
    assert found["command"][1:3] == ["drill", job[2]]
    assert not (tmp_path / "to").exists()
    assert list((tmp_path / "records").iterdir()) == []
    assert wait_until_gone(tmp_path)


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked for in /proc")
def test_a_rank_that_is_killed_ends_the_drill_with_4(begun: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(ranks_of(tmp_path)[-1], signal.SIGKILL)
    _, complaint = begun.communicate(timeout=60)
    assert begun.returncode == 4, complaint
    assert 'of leg "uninterrupted" was killed by SIGKILL' in complaint
    assert wait_until_gone(tmp_path)
    assert not (tmp_path / "to").exists()


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_nothing_is_left_when_the_drill_itself_is_stopped(
    number: signal.Signals, code: int, begun: subprocess.Popen[str], tmp_path: Path
) -> None:
    begun.send_signal(number)
    begun.communicate(timeout=60)
    assert begun.returncode == code
    assert wait_until_gone(tmp_path)
    if number != signal.SIGKILL:
        assert not (tmp_path / "to").exists()
