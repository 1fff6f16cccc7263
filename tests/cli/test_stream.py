"""A line in, a line out: in order, whatever the lines are."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fullstep.cli import main
from fullstep.cli.stream import Tally, answer_lines
from fullstep.errors import Fault, InputError
from fullstep.job.raw_bytes import LARGEST_BYTES
from fullstep.ledger import Answer, Holdings, HostMemory, Instant, Memory, OtherPeaks
from fullstep.quantities import Bounds

FULLSTEP = Path(sys.executable).parent / "fullstep"
SMALL = '{"model":{"name":"meta-llama/Llama-3.1-8B"},"method":{"kind":"lora"},"machine":{"gpu":"H100-SXM"}}'


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A long stream tunes the garbage collector of its process: the tests' own is put back."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def answer(text: str, name: str) -> Answer:
    """A count of letters as the model's size; "bad" is at fault, "ours" a fault of ours."""
    if "bad" in text:
        raise InputError(Fault(name, "bad", "good"), Fault(name, "worse", "better"))
    if "ours" in text:
        raise ZeroDivisionError("division by zero")
    memory = Memory(
        evidence="estimated", allocated_peak_bytes=Bounds(1, 2, 3), reserved_peak_bytes=Bounds(1, 2, 3), device_peak_bytes=Bounds(1, 2, 3),
        needed_bytes=Bounds(1, 2, 3), peak_at="forward", instants=(Instant("forward", Holdings(weights=2)),), other_peaks=OtherPeaks(),
        usable_bytes=None, verdict="unknown",
    )  # fmt: skip
    host = HostMemory(evidence="estimated", memory_peak_bytes=1, at="load", verdict="unknown")
    return Answer(parameters=len(text), trainable_parameters=1, memory=memory, host=host)


def replies(source: bytes) -> tuple[list[dict[str, object]], Tally]:
    target = io.StringIO()
    tally = answer_lines(io.BytesIO(source), target, answer)
    return [json.loads(line) for line in target.getvalue().splitlines()], tally


def sizes(documents: list[dict[str, object]]) -> list[object]:
    return [document["model"]["parameters"] if "model" in document else "error" for document in documents]  # type: ignore[index]


def test_order_is_kept_and_a_bad_line_stops_nothing() -> None:
    documents, tally = replies(b"a\nbad\nccc\nours\ndd\n")
    assert sizes(documents) == [1, "error", 3, "error", 2]
    assert tally == Tally(3, 1, 1)


def test_a_bad_line_has_all_its_faults_and_its_number() -> None:
    (_, document), _ = replies(b"a\nbad\n")
    assert document["error"] == "line 2: bad; allowed: good\nline 2: worse; allowed: better"


def test_empty_lines_are_no_worksheets_but_count() -> None:
    documents, _ = replies(b"\n\r\n  \nbad")
    assert len(documents) == 1
    assert str(documents[0]["error"]).startswith("line 4")


@pytest.mark.parametrize("source", [b"", b"\n", b"\n\n\n"])
def test_nothing_in_nothing_out(source: bytes) -> None:
    assert replies(source) == ([], Tally())


def test_the_last_line_needs_no_end() -> None:
    assert sizes(replies(b"a\nbb")[0]) == [1, 2]


def test_lines_longer_than_a_chunk_are_put_together() -> None:
    assert sizes(replies(b"x" * 200_000 + b"\n" + b"y" * 70_000)[0]) == [200_000, 70_000]


def test_a_line_far_too_long_is_refused_and_the_next_is_answered() -> None:
    documents, tally = replies(b"x" * (20 * LARGEST_BYTES) + b"\nbb\n")
    assert sizes(documents) == ["error", 2]
    assert tally.at_fault == 1


def test_what_is_no_text_is_refused() -> None:
    documents, _ = replies(b"\xff\xfe\nbb\n")
    assert "no UTF-8 text" in str(documents[0]["error"])
    assert sizes(documents) == ["error", 2]


def run(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FULLSTEP, "estimate", "--jsonl", *arguments], input=source, capture_output=True, text=True, check=False)


def test_the_command() -> None:
    done = run(f"{SMALL}\n{SMALL}\n")
    assert done.returncode == 0 and not done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == second
    assert first["model"]["parameters"] == 8030261248


@pytest.mark.parametrize(
    "bad",
    ["{", "[]", "null", '{"model":{"name":NaN}}', '{"modle":{}}', "[" * 100_000, '{"batch":{"micro_batch":1e30}}', "1" * 5000],
)
def test_hostile_lines(bad: str) -> None:
    done = run(f"{bad}\n{SMALL}\n")
    assert done.returncode == 0 and not done.stderr  # every line has its answer
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["error"].startswith("line 1")
    assert "memory" in second


@pytest.mark.parametrize("arguments", [["job.toml"], ["--model", "gpt2"], ["--set", "batch.micro_batch=2"], ["-"]])
def test_nothing_is_laid_over_the_lines(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--jsonl", *arguments]) == 2
    assert "--jsonl" in capsys.readouterr().err


def test_a_fault_of_ours_in_one_line_is_told_by_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(worksheet: object) -> Answer:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("fullstep.api.answer.estimate", fails)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SMALL.encode())))
    assert main(["estimate", "--jsonl"]) == 1
    assert "ZeroDivisionError" in json.loads(capsys.readouterr().out)["error"]


def test_a_mark_of_byte_order_is_no_fault() -> None:
    done = run("\ufeff" + SMALL + "\n")
    assert "memory" in json.loads(done.stdout)


def test_a_dialogue_is_answered_line_by_line() -> None:
    """The first answer comes while the input is still open."""
    with subprocess.Popen([FULLSTEP, "estimate", "--jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        giving_up = threading.Timer(30, process.kill)
        giving_up.start()
        for _ in range(2):
            process.stdin.write(SMALL + "\n")
            process.stdin.flush()
            assert "memory" in json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait() == 0
        giving_up.cancel()


def test_a_reader_that_leaves_is_no_fault() -> None:
    """As in ``fullstep estimate --jsonl < many | head -1``."""
    with subprocess.Popen(
        [FULLSTEP, "estimate", "--jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(SMALL + "\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        try:
            process.stdin.write((SMALL + "\n") * 200)
            process.stdin.close()
        except BrokenPipeError:
            os.write(2, b"")
        assert process.wait() == 141
        assert process.stderr.read() == ""
