"""A training is run, killed and started again; what it loses on the way has to show."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from fullstep.errors import InputError, LabError
from fullstep.lab.drill.command.drill import Trial, _verdict_of_losses, difference, drill_command
from fullstep.lab.drill.command.log import Logged, logged_in, pattern_of
from fullstep.lab.drill.command.run import CommandRun, run_command
from fullstep.ledger.command_drill import CommandDrill

_TRAINING = str(Path(__file__).with_name("training.py"))


def _drill(room: Path, lost: str, steps: int = 10, kill_after: float | None = 5, command: tuple[str, ...] = ()) -> CommandDrill:
    whole = command or (sys.executable, _TRAINING, str(steps), lost)
    return drill_command(Trial(whole, (), kill_after, None, 60.0), room, lambda _: None)


def test_a_training_that_keeps_everything_passes(tmp_path: Path) -> None:
    found = _drill(tmp_path, "nothing")
    assert found.verdict == "passed"
    assert found.killed_after_step in (5, 6, 7)  # it goes on until the kill reaches it
    assert found.resumed_at_step in (5, 7)  # it saves each second step
    assert [each.step for each in found.compared] == list(range(int(found.resumed_at_step), 11))
    assert found.largest_difference == found.difference_before_kill == 0
    assert found.checkpoint_files == 1 and found.checkpoint_bytes == (tmp_path / "killed" / "state.json").stat().st_size
    assert found.killed_to_first_step_seconds is not None and found.killed_to_first_step_seconds > 0


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("everything", "it began anew at step 1"),
        ("moment", "losses differ by"),
        ("rng", "losses differ by"),
        ("position", "losses differ by"),
        ("crash", "it ended with exit code 1: the checkpoint cannot be read"),
    ],
)
def test_what_is_lost_shows(tmp_path: Path, lost: str, why: str) -> None:
    found = _drill(tmp_path, lost)
    assert found.verdict == "failed"
    assert why in found.reason


def test_a_training_that_differs_from_itself_is_not_decided(tmp_path: Path) -> None:
    assert _drill(tmp_path, "seed").verdict == "undecided"


def test_too_few_steps_to_compare_prove_nothing(tmp_path: Path) -> None:
    assert _drill(tmp_path, "nothing", kill_after=9).verdict == "void"  # it goes on at step 9


@pytest.mark.parametrize("lost", ["flat", "nan"])
def test_losses_that_stand_still_after_resuming_prove_nothing(tmp_path: Path, lost: str) -> None:
    found = _drill(tmp_path, lost)
    assert (found.verdict, "another state would not show" in found.reason) == ("void", True)


def test_a_command_that_ends_before_it_is_killed(tmp_path: Path) -> None:
    program = "import os; os.write(1, b''.join(b'step %d loss %d\\n' % (n, 9 - n) for n in range(1, 9)))"  # all in one write
    with pytest.raises(InputError, match="ended before it could be killed"):
        _drill(tmp_path, "", command=(sys.executable, "-c", program))


def test_far_above_what_it_differs_by_from_itself_is_a_failure() -> None:
    def run(*losses: float) -> CommandRun:
        return CommandRun({float(step): [str(loss)] for step, loss in enumerate(losses, 1)}, 0)

    whole, again = run(5, 4, 3, 2, 1), run(5, 4, 3, 2, 1.5)
    assert _verdict_of_losses(whole, again, 0.33, 2e-6)[0] == "failed"
    assert _verdict_of_losses(whole, again, 1e-5, 2e-6)[0] == "undecided"
    assert _verdict_of_losses(whole, again, 1e-7, 0.0)[0] == "passed"


def test_losses_that_never_change_prove_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another state would not show"):
        _drill(tmp_path, "constant")


def test_a_kill_outside_of_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--kill-after: 10"):
        _drill(tmp_path, "nothing", kill_after=10)


def test_the_middle_is_the_default(tmp_path: Path) -> None:
    assert _drill(tmp_path, "nothing", kill_after=None).killed_after_step in (6, 7, 8)


def test_a_command_that_fails_by_itself_is_not_drilled(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="exit code 3"):
        _drill(tmp_path, "", command=(sys.executable, "-c", "raise SystemExit(3)"))


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        _drill(tmp_path, "", command=("no-such-program",))


def test_output_without_losses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 steps with a loss"):
        _drill(tmp_path, "", command=(sys.executable, "-c", "print('hello')"))


def test_the_folder_can_be_a_part_of_the_command(tmp_path: Path) -> None:
    program = "import sys, os; assert sys.argv[1] == os.environ['CHECKPOINT_DIR'] + '/x'"
    with pytest.raises(InputError, match="0 steps"):
        _drill(tmp_path, "", command=(sys.executable, "-c", program, "{CHECKPOINT_DIR}/x"))


def test_nothing_is_left_running(tmp_path: Path) -> None:
    """A child in a session of its own, as launchers start their ranks, and which ignores its parent's end."""
    child = "import time, os; open(r'{}', 'w').write(str(os.getpid())); time.sleep(600)"
    file = tmp_path / "child"
    program = (
        "import subprocess, sys, time, pathlib\n"
        f"subprocess.Popen([sys.executable, '-c', {child.format(file)!r}], start_new_session=True)\n"
        f"while not pathlib.Path({str(file)!r}).exists(): time.sleep(0.01)\n"
        "print('step 1 loss 2', flush=True)\ntime.sleep(600)"
    )
    seen: list[bool] = []
    run = run_command([sys.executable, "-c", program], {}, kill_when=lambda _: not seen.append(_is_running(int(file.read_text()))))
    assert run.status is None and seen == [True]
    assert not _is_running(int(file.read_text()))


def _is_running(process: int) -> bool:
    """One that has ended may wait for its parent to ask how."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_one_that_hangs_after_the_kill_has_failed(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time\n"
        "again = pathlib.Path(os.environ['CHECKPOINT_DIR'], 'x')\n"
        "time.sleep(600 if again.exists() else 0)\nagain.touch()\n"
        "[(print('step', n, 'loss', 9 - n), time.sleep(0.1)) for n in range(1, 9)]"
    )
    trial = Trial((sys.executable, "-c", program), (), 3, None, 3.0)
    found = drill_command(trial, tmp_path, lambda _: None)
    assert (found.verdict, "printed nothing for 3 s" in found.reason) == ("failed", True)


def test_a_command_that_hangs_is_stopped() -> None:
    begun = time.monotonic()
    with pytest.raises(LabError, match="printed nothing for 1 s"):
        run_command([sys.executable, "-c", "import time; time.sleep(600)"], {}, silent_seconds=1)
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{'loss': '4.1589', 'grad_norm': '0.2', 'learning_rate': '5e-05', 'epoch': '0.1'}", Logged(0.1, "4.1589", is_epoch=True)),
        ("{'loss': 4.1589, 'epoch': 0.1}", Logged(0.1, "4.1589", is_epoch=True)),
        ('{"step": 3, "loss": 1.25}', Logged(3, "1.25")),
        ("[rank0]: step=12 train_loss=1.5e-1 lr=3", Logged(12, "1.5e-1")),
        ("\x1b[31mstep:  4\x1b[0m  \x1b[32mloss:  7.8\x1b[39m", Logged(4, "7.8")),
        (" 1|20|Loss: 2.28", None),
        ("{'eval_loss': 3, 'epoch': 1}", None),
        ("{'train_runtime': '1.0', 'train_loss': '4.1', 'epoch': '1'}", None),
        ("loss: 1.25 step 3", Logged(3, "1.25")),
        ("loss", None),
        ("step 3 loss nan", Logged(3, "nan")),
        ("{" * 2000, None),
        ("step 1 " * 20_000, None),
        ("step 5 eval loss 3.0", None),
        ("step 3 loss -inf", Logged(3, "-inf")),
        ("step 3 loss: 1.25, lr 1", Logged(3, "1.25")),
        ("step 3 loss 1,25", Logged(3, "1")),
        ("{'step': 3, 'loss': 'none'}", None),
    ],
)
def test_lines(line: str, found: Logged | None) -> None:
    assert logged_in(line) == found


def test_a_pattern_of_the_user() -> None:
    assert logged_in(" 1|20|Loss: 2.28", pattern_of(r"\|(?P<step>\d+)\|Loss: (?P<loss>\S+)")) == Logged(20, "2.28")
    assert logged_in("step 3 loss 0.9, lr 1", pattern_of(r"step (?P<step>\d+) loss (?P<loss>\S+)")) == Logged(3, "0.9")
    assert logged_in("step 3 loss much", pattern_of(r"step (?P<step>\d+) loss (?P<loss>\S+)")) is None
    assert logged_in("step 3", pattern_of(r"step (?P<step>\d+)(?: loss (?P<loss>\S+))?")) is None
    for bad in ("(", r"(?P<step>\d+)"):
        with pytest.raises(InputError, match="--loss-pattern"):
            pattern_of(bad)


def test_ranks_may_print_in_any_order() -> None:
    assert difference(["1.5", "2.5"], ["2.5", "1.5"]) == 0
    assert difference(["1.5", "2.5"], ["2.5"]) == float("inf")
    assert difference(["9.999999", "5.0"], ["10.0", "5.0"]) < 2e-7
