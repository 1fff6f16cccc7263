"""Standard streams that are closed, full or of another encoding are faults of the surroundings, not of fullstep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULLSTEP = str(Path(sys.executable).parent / "fullstep")
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
GPT2 = '{"model": {"name": "gpt2"}}'


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    variables = {"PATH": os.environ["PATH"], **environment}
    words = ["bash", "-c", command.replace("F ", f"{FULLSTEP} ", 1)]
    return subprocess.run(words, capture_output=True, check=False, env=variables, timeout=60)


@pytest.mark.parametrize("command", ["F plan - <&-", "F estimate --jsonl <&-", "F estimate - <&-"])
def test_a_closed_input_is_a_missing_worksheet(command: str) -> None:
    done = shell(command)
    assert done.returncode == 2
    assert b"standard input: closed" in done.stderr and b"fault of fullstep" not in done.stderr


@pytest.mark.parametrize("command", ["F init >&-", "F estimate --model gpt2 --json >&-", "F plan --help >&-", "F >&-"])
def test_a_closed_output_is_told(command: str) -> None:
    done = shell(command)
    assert done.returncode == 1
    assert done.stderr == b"fullstep: the output could not be written: standard output is closed\n"


@FULL
@pytest.mark.parametrize(
    "command", ["F init >/dev/full", "F plan --help >/dev/full", "F --version >/dev/full", f"F estimate --jsonl >/dev/full <<< '{GPT2}'"]
)
def test_a_full_disk_is_told(command: str) -> None:
    done = shell(command)
    assert done.returncode == 1
    assert done.stderr == b"fullstep: the output could not be written: No space left on device\n"


@pytest.mark.parametrize("errors", ["2>&-", pytest.param("2>/dev/full", marks=FULL)])
def test_the_exit_code_does_not_hang_on_the_messages(errors: str) -> None:
    assert shell(f"F plan nofile {errors}").returncode == 2
    assert shell(f"F estimate --model gpt2 {errors}").returncode == 0


@pytest.mark.parametrize("encoding", ["ascii:strict", "cp437:strict", "utf-8:strict"])
@pytest.mark.parametrize("command", ["F init", "F plan --help", "F plan --model gpt2 --gpu T4"])
def test_every_encoding_can_be_printed(command: str, encoding: str) -> None:
    done = shell(command, PYTHONIOENCODING=encoding)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.decode(encoding.partition(":")[0])


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux alone")
@pytest.mark.parametrize("form", ["", "--json"])
def test_a_path_that_is_no_text(form: str, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/m\xff"
    Path(os.fsdecode(folder)).mkdir()
    Path(os.fsdecode(folder), "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    variables = {"PYTHONIOENCODING": "utf-8:strict", "PATH": os.environ["PATH"]}
    for words, code in (["estimate", "--config", folder], 0), (["plan", folder + b"/none.toml"], 2):
        command = [FULLSTEP, *words, *([form] if form else [])]
        done = subprocess.run(command, capture_output=True, check=False, env=variables, timeout=60)
        assert done.returncode == code, done.stderr
        assert b"udcff" in done.stdout + done.stderr or (form and code == 0)


def test_interrupted_while_it_starts() -> None:
    code = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from fullstep.cli import main
sys.exit(main(["plan", "--model", "gpt2"]))
"""
    for module in ("fullstep.cli.doorway", "fullstep.cli.plan", "fullstep.job"):
        done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (130, b"")
