"""A file that is digested while it is written."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.resume.stream import DigestedStream

LARGE = (1 << 23) + 12345


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 1, 7, 65_535, 65_536, 65_537, 200_000]), max_size=8), seed=st.integers(0, 255))
def test_what_is_written_is_what_is_digested(sizes: list[int], seed: int) -> None:
    data = [bytes([(seed + number) % 256]) * size for number, size in enumerate(sizes)]
    inner = io.BytesIO()
    with DigestedStream(inner) as stream:
        for each in data:
            assert stream.write(each) == len(each)
        assert stream.tell() == sum(sizes)
        written = stream.written()
        assert inner.getvalue() == b"".join(data)
    assert written.bytes == sum(sizes) and written.sha256 == hashlib.sha256(b"".join(data)).hexdigest() and written.waited_seconds >= 0


class Some(io.RawIOBase):
    """Takes a part of what it is given, as a disk may that is nearly full."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.data, self._room = bytearray(), room

    def write(self, data: Any, /) -> int:
        if len(self.data) >= self._room:
            raise OSError(28, "No space left on device")
        taken = bytes(data[: min(1000, self._room - len(self.data))])
        self.data += taken
        return len(taken)


def test_parts_are_written_until_all_is(tmp_path: Path) -> None:
    inner = Some(10**6)
    data = bytes(range(256)) * 2000
    with DigestedStream(inner) as stream:
        assert stream.write(data) == len(data)
        assert stream.written().sha256 == hashlib.sha256(data).hexdigest()
    assert inner.data == data


def test_an_error_of_the_disk_is_raised_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(OSError, match="No space left"), DigestedStream(Some(150_000)) as stream:
        stream.write(b"x" * 200_000)
    assert threading.active_count() == before


def test_a_disk_that_takes_nothing_is_an_error_and_no_endless_loop() -> None:
    class Nothing(io.RawIOBase):
        def write(self, data: Any, /) -> int:
            return 0

    with pytest.raises(OSError, match="nothing was written"), DigestedStream(Nothing()) as stream:
        stream.write(b"x")


def test_the_callers_memory_is_its_own_again(tmp_path: Path) -> None:
    """It may be changed as soon as write returns, although another thread digests."""
    data = bytearray(b"1" * LARGE)
    expected = hashlib.sha256(data).hexdigest()
    with (tmp_path / "file").open("wb", buffering=0) as file, DigestedStream(file) as stream:
        stream.write(data)
        data[:] = b"2" * LARGE
        assert stream.written().sha256 == expected
        assert stream.fileno() == file.fileno()
    assert hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest() == expected


def test_when_python_ends(tmp_path: Path) -> None:
    """No new thread can be started then; it waits for those that write."""
    code = (
        "import sys, threading, time\n"
        "from fullstep.resume.stream import DigestedStream\n"
        "def late():\n"
        "    threading.main_thread().join()\n"
        "    with open(sys.argv[1], 'wb', buffering=0) as file, DigestedStream(file) as stream:\n"
        "        stream.write(b'x' * 100_000)\n"
        "        print(stream.written().sha256)\n"
        "threading.Thread(target=late).start()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (hashlib.sha256(b"x" * 100_000).hexdigest(), "")
