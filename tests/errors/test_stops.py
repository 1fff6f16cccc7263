"""Signals that end the program find what was made taken away, at whatever instant they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fullstep.errors import stops
from fullstep.errors.stops import stoppable, stops_wait

SIGNALS = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]


def come(number: int) -> None:
    """Now, and not some instructions later."""
    signal.raise_signal(number)


@pytest.mark.parametrize(("number", "kind"), SIGNALS)
def test_outside_of_what_is_stoppable_it_waits_for_the_end(number: signal.Signals, kind: type[BaseException]) -> None:
    done = []
    with pytest.raises(kind), stops_wait():
        come(number)
        done.append("made")
        with stops_wait():
            come(number)
            done.append("made more")
        done.append("taken away")
    assert done == ["made", "made more", "taken away"]


@pytest.mark.parametrize(("number", "kind"), SIGNALS)
def test_inside_it_comes_at_once_and_a_second_one_waits_for_the_cleanup(number: signal.Signals, kind: type[BaseException]) -> None:
    done = []
    with pytest.raises(kind), stops_wait():
        try:
            with stoppable():
                come(number)
                done.append("never")
        finally:
            come(number)
            done.append("taken away")
    assert done == ["taken away"]


def test_one_that_waited_comes_where_the_program_can_be_stopped_next() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), stops_wait():
        with stoppable(), stops_wait():
            come(signal.SIGINT)
            done.append("inner")
        done.append("never")
    with pytest.raises(KeyboardInterrupt), stops_wait():
        come(signal.SIGINT)
        with stoppable():
            done.append("never")
    assert done == ["inner"]


def test_afterwards_everything_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are ignored, as under nohup, stay so; a handler of somebody's own is the one that is called."""
    told: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        mine = signal.getsignal(signal.SIGTERM)
        with stops_wait():
            come(signal.SIGHUP)
            come(signal.SIGTERM)
            assert told == []
            with stoppable():
                assert told == [signal.SIGTERM]
                come(signal.SIGTERM)
                come(signal.SIGTERM)
            assert told == [signal.SIGTERM] * 3
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    assert (stops._DOOR.before, stops._DOOR.waiting, stops._DOOR.shut) == ({}, [], False)


def test_other_threads_are_not_concerned() -> None:
    done = []

    def work() -> None:
        with stops_wait(), stoppable():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGINT)]


def test_whenever_it_comes_nothing_stays(tmp_path: Path) -> None:
    """A program that does nothing but make and take away, stopped at many instants."""
    program = (
        "import pathlib, sys\nfrom fullstep.errors.stops import ends_by_signal, stoppable, stops_wait\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "with ends_by_signal():\n print(flush=True)\n while True:\n  with stops_wait():\n   folder.mkdir()\n   try:\n"
        "    with stoppable():\n     pass\n   finally:\n    folder.rmdir()\n"
    )
    for turn in range(12):
        number = (signal.SIGINT, signal.SIGTERM)[turn % 2]
        folder = tmp_path / str(turn)
        words = [sys.executable, "-c", program, str(folder)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.kill(process.pid, number)
            os.kill(process.pid, number)
        assert process.returncode in (-signal.SIGINT, 128 + signal.SIGTERM)
        assert not folder.exists()
