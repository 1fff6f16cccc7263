"""Whatever a program does to get away from whoever started it, nothing of it is left; and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fullstep.errors import LabError
from fullstep.lab.drill.command.log import Logged
from fullstep.lab.drill.command.run import run_command
from fullstep.lab.ranks import processes
from fullstep.lab.ranks.processes import Processes, processes_with, started

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not list its processes")
SLEEPS = "import time; time.sleep(600)"
ESCAPES = {
    "a session of its own": "subprocess.Popen(['setsid', 'sleep', SECONDS])",
    "without its environment": "subprocess.Popen(['env', '-i', 'sleep', SECONDS])",
    "both": "subprocess.Popen(['env', '-i', 'setsid', 'sleep', SECONDS])",
    "an orphan": "subprocess.run(['env', '-i', 'setsid', 'sh', '-c', 'sleep ' + SECONDS + ' &'])",
    "an orphan's orphan": "subprocess.run(['env', '-i', 'setsid', 'sh', '-c', '(setsid sh -c \"sleep ' + SECONDS + ' & :\") &'])",
}
"""ways to get away"""


def sleeping(seconds: str) -> list[int]:
    """Processes that sleep so long, those among them that have ended and wait for somebody to ask how."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def ended_children() -> list[int]:
    """Of this process, that nobody took note of."""
    there = processes._listed()
    return [each for each, entry in there.items() if entry.parent == os.getpid() and entry.ended]


def wait_until(what: Callable[[], object]) -> bool:
    until = time.monotonic() + 20
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(what())


@contextmanager
def begun(program: str) -> Iterator[Processes]:
    words = [sys.executable, "-c", program]
    with started(words, os.environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as found:
        yield found


@contextmanager
def sleeper(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(words) as process:
        try:
            yield process
        finally:
            process.kill()


@needs_proc
@pytest.mark.parametrize("way", ESCAPES)
@pytest.mark.parametrize("ends", [False, True], ids=["killed", "ends by itself"])
def test_no_child_gets_away_from_a_command(way: str, ends: bool) -> None:
    seconds = str(6100 + list(ESCAPES).index(way) * 2 + ends)
    program = f"import subprocess, time\nSECONDS = '{seconds}'\n{ESCAPES[way]}\ntime.sleep(0.3)\nprint('step 1 loss 2', flush=True)\n"
    seen: list[int] = []
    before = ended_children()  # of other tests

    def kills(_: Logged) -> bool:
        seen.append(len(sleeping(seconds)))
        return not ends

    run = run_command([sys.executable, "-c", program + ("" if ends else "time.sleep(600)")], {}, kill_when=kills)
    assert seen == [1]
    assert run.status == (0 if ends else None)
    assert sleeping(seconds) == []
    assert set(ended_children()) <= set(before)


@needs_proc
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a child of ours that nobody has asked how it ended"])
def test_orphans_that_end_are_gone_at_once_as_without_a_drill(beside: bool) -> None:
    """The command waits until its grandchild is no longer there."""
    if beside:
        ended = subprocess.Popen(["true"], start_new_session=True)
        assert wait_until(lambda: ended.pid in ended_children())
    program = (
        "import pathlib, subprocess, time\n"
        "child = subprocess.run(['env', '-i', 'setsid', 'sh', '-c', 'sleep 0.1 >&- 2>&- & echo $!'], capture_output=True, text=True)\n"
        "while pathlib.Path('/proc', child.stdout.strip()).exists(): time.sleep(0.02)\n"
        "print('step 1 loss 2')"
    )
    run = run_command([sys.executable, "-c", program], {}, silent_seconds=20)
    assert (run.status, run.last_step) == (0, 1)
    if beside:
        assert ended.wait() == 0  # it was left to whoever began it


@needs_proc
def test_what_was_there_before_stays_and_so_does_the_process_as_it_was() -> None:
    """A child of our own, in a session of its own and without a mark, as an orphan of the run would be; and one in our group."""
    with sleeper("env", "-i", "setsid", "sleep", "6200") as before:
        assert wait_until(lambda: sleeping("6200"))
        with begun(SLEEPS) as found, sleeper("sleep", "6201") as beside:
            assert processes._become_subreaper(True) is True
            assert found.kill() < 20
            assert (before.poll(), beside.poll()) == (None, None)
        assert before.poll() is None
    assert processes._become_subreaper(False) is False


@needs_proc
def test_of_two_runs_at_once_each_kills_its_own_and_the_last_one_what_nobody_can_tell() -> None:
    program = f"import subprocess, time\nSECONDS = '6300'\n{ESCAPES['an orphan']}\ntime.sleep(600)"
    with begun(SLEEPS) as one:
        with begun(program) as two:
            assert wait_until(lambda: sleeping("6300"))
            one.kill()
            assert two.first.poll() is None
            assert len(sleeping("6300")) == 1
        assert len(sleeping("6300")) == 1
    assert sleeping("6300") == []


def test_where_the_system_lists_no_processes_the_group_and_known_ids_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child in the same group, and a rank in a session of its own that told its id."""
    monkeypatch.setattr(processes, "processes_with", lambda _: None)
    monkeypatch.setattr(processes, "_become_subreaper", lambda _: None)
    program = (
        "import subprocess, sys\nsleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "one, two = subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)\n"
        "print(one.pid, two.pid, flush=True)\none.wait()"
    )
    with begun(program) as found:
        assert found.first.stdout is not None
        in_group, rank = map(int, found.first.stdout.readline().split())
        found.known.add(rank)
        assert found.left() == {-found.first.pid, rank}
        found.kill()
        assert found.left() == set()
    assert wait_until(lambda: not processes._is_there(in_group) and not processes._is_there(rank))


def test_what_sigkill_does_not_end_is_said_by_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_KILL_SECONDS", 0.1)
    with begun(SLEEPS) as found, monkeypatch.context() as patched:
        patched.setattr(found, "left", lambda: {12, 7})
        patched.setattr(os, "kill", lambda *_: None)
        with pytest.raises(LabError, match=r"does not end within 0\.1 s: 7, 12"):
            found.kill()
        patched.undo()
    assert found.left() == set()


def test_an_error_inside_is_told_and_not_what_came_of_it() -> None:
    with pytest.raises(RuntimeError, match="mine"), begun(SLEEPS) as found:
        raise RuntimeError("mine")
    assert found.first.returncode == -signal.SIGKILL


@needs_proc
def test_processes_are_found_by_what_is_in_their_environment() -> None:
    """What was there at the start of this process."""
    variable = Path("/proc/self/environ").read_bytes().split(b"\0")[0].decode()
    assert os.getpid() in (processes_with(variable) or [])
    assert processes_with("FULLSTEP_NOBODY=has this") == []


def test_a_command_that_closes_its_output_and_goes_on_is_stopped() -> None:
    program = "import os, time; print('step 1 loss 2', flush=True); os.close(1); os.close(2); time.sleep(600)"
    with pytest.raises(LabError, match=r"closed its output, had not ended 1 s later.*--silent-seconds"):
        run_command([sys.executable, "-c", program], {}, silent_seconds=1)
