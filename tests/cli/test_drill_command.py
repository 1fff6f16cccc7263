"""`fullstep drill -- CMD`: what it prints, how it ends, what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fullstep.cli import main

_TRAINING = str(Path(__file__).parent.parent / "lab" / "drill" / "command" / "training.py")


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
        (["--model", "gpt2", "--", "x"], "a worksheet, or keys of one, and a command after --"),
        (["--", "no-such-program-here"], '"no-such-program-here": No such file'),
        (["--loss-pattern", "(", "--", "x"], "--loss-pattern"),
        (["--restart-with", "'", "--", "x"], "--restart-with"),
        (["--to", "s3://bucket/x", "--", "x"], "--to"),
        (["--silent-seconds", "nan", "--", "x"], "--silent-seconds"),
        (["--to", "/proc/nowhere", "--", "x"], "a folder that can be written"),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_command_that_fails_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", "--", sys.executable, "-c", "print('Traceback: no data'); raise SystemExit(7)"]) == 4
    err = capsys.readouterr().err
    assert "exit code 7" in err and "no data" in err
