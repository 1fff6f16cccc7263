"""`fullstep drill -- CMD`: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fullstep.cli import main

_TRAINING = str(Path(__file__).parent.parent / "lab" / "drill" / "command" / "training.py")
_SLOW = "[(print('step', n, 'loss', 9 - n, flush=True), time.sleep(0.1)) for n in range(1, 99)]"


def _drill(*words: str, lost: str = "nothing") -> int:
    return main(["drill", *words, "--", sys.executable, _TRAINING, "10", lost])


def test_a_training_that_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _drill("--to", str(tmp_path), "--kill-after", "4") == 0
    out = capsys.readouterr().out
    assert "losses after resuming are the same in all digits that were printed" in out
    assert "by SIGKILL, with all that it had started, after it logged step" in out
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert _drill(lost="moment") == 3
    out = capsys.readouterr().out
    assert "FAILED: losses differ by" in out and "  differs" in out


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert _drill("--json", "--kill-after", "4", lost="everything") == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["resumed_at_step"], found["worksheet"], found["evidence"]) == ("failed", 1, None, "measured")
    assert found["compared"][0]["step"] == 1


def test_files_are_kept_where_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _drill("--to", str(tmp_path), "--keep-files") == 0
    assert len(list(tmp_path.rglob("state.json"))) == 2


def test_arguments_for_the_start_after_the_kill(capsys: pytest.CaptureFixture[str]) -> None:
    slow = "__import__('time').sleep(0.1)"
    program = f"import sys; [(print('step', n, 'loss', 9 - n), {slow}) for n in range(3 if 'again' in sys.argv[1:] else 1, 8)]"
    assert main(["drill", "--restart-with", "'again' {CHECKPOINT_DIR}", "--kill-after", "3", "--", sys.executable, "-c", program]) == 0
    assert "went on at step 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--"], "nothing after --"),
        (["--cpu", "2", "--mode", "sync", "--", "x"], "--cpu, --mode with a command after --"),
        (["--cpu", "0", "--ranks-after", "0", "--layers", "0", "--", "x"], "--cpu, --ranks-after, --layers with a command after --"),
        (["--model", "gpt2", "--", "x"], "a worksheet, or keys of one, and a command after --"),
        (["--", "no-such-program-here"], '"no-such-program-here": No such file'),
        (["--loss-pattern", "(", "--", "x"], "--loss-pattern"),
        (["--restart-with", "'", "--", "x"], "--restart-with"),
        (["--to", "s3://bucket/x", "--", "x"], "--to"),
        (["--silent-seconds", "nan", "--", "x"], "--silent-seconds"),
        (["--to", "/proc/nowhere", "--", "x"], "nothing can be made there: No such file"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_command_that_fails_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--", sys.executable, "-c", "print('Traceback: no data'); raise SystemExit(7)"]) == 4
    err = capsys.readouterr().err
    assert "exit code 7" in err and "no data" in err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_whenever_it_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    """The command's child has no environment and no session of its parent's; the drill is told twice to end."""
    program = f"import subprocess, time\nsubprocess.Popen(['env', '-i', 'setsid', 'sleep', '6400'])\n{_SLOW}"
    fullstep, folder = Path(sys.executable).with_name("fullstep"), tmp_path / "new" / "to"
    words = [str(fullstep), "drill", "--to", str(folder), "--", sys.executable, "-c", program]
    for turn in range(6):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            until = time.monotonic() + 30
            while not (tmp_path / "new").exists() and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(turn * 0.02)
            process.send_signal(number)
            time.sleep(0.005)
            process.send_signal(number)
            process.communicate(timeout=60)
        assert process.returncode in (128 + number, -number)  # the second one may come when all is done
        assert list(tmp_path.iterdir()) == []
        assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if _words_of(path)[:2] == [b"sleep", b"6400"]] == []


def _words_of(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []
