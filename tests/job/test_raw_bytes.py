"""What is no regular file is read where a shell hands it over, and never waited for where nobody writes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fullstep.errors import InputError
from fullstep.job import raw_bytes, read_mapping
from fullstep.job.raw_bytes import LARGEST_BYTES

TEXT = '[model]\nname = "gpt2"\n'
PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


@PIPES
def test_a_pipe_without_a_writer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_bytes, "PATIENCE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    start = time.monotonic()
    with pytest.raises(InputError, match="a pipe into which nothing was written"):
        read_mapping(tmp_path / "pipe")
    assert time.monotonic() - start < 2


@PIPES
def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with (tmp_path / "pipe").open("w") as pipe:
            pipe.write(TEXT[:9])
            pipe.flush()
            time.sleep(0.05)
            pipe.write(TEXT[9:])

    writer = threading.Thread(target=write)
    writer.start()
    mapping, _, _ = read_mapping(tmp_path / "pipe")
    writer.join()
    assert mapping == {"model": {"name": "gpt2"}}


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="this system has no process substitution")
def test_a_process_substitution_is_read(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(TEXT, encoding="utf-8")
    command = f"{Path(sys.executable).parent / 'fullstep'} estimate <(sleep 0.1; cat job.toml) --json"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("path", "word"), [("/dev/zero", "a device"), (".", "a folder"), ("", "an empty name"), (" ", "an empty name")])
def test_what_is_no_file(path: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        read_mapping(path)


def test_too_large_says_how_large(tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (LARGEST_BYTES + 1))
    with pytest.raises(InputError, match="a file of 262,145 bytes"):
        read_mapping(large)
    with pytest.raises(InputError, match="more than 262,144 bytes"):
        read_mapping("-", io.BytesIO(b"#" * (LARGEST_BYTES + 2)))


def test_a_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InputError, match="standard input: closed"):
        read_mapping("-")
