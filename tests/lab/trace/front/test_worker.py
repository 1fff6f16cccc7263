"""A worker may do what it likes: a trace or a clear error comes of it, and no process or file is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fullstep.errors import InputError, LabError, UnsupportedError
from fullstep.job import Settings
from fullstep.lab.trace import trace_step
from fullstep.lab.trace.front import process
from fullstep.ledger import Trace

Traced = Callable[..., Trace]
CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def is_gone(pid: int) -> bool:
    """The process has ended, though nobody may have asked for its exit code yet; it is waited for, but not for long."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_a_trace_and_the_stages_before_it(traced: Traced) -> None:
    stages: list[str] = []
    trace = traced(progress=stages.append)
    assert stages == ["building the model", "tracing block 1 of 2"]
    assert (trace.parameters, trace.peak_at, trace.seconds) == (1000, "backward", 1.5)
    assert trace.instants[0].holdings.weights == trace.instants[0].allocated_bytes == 4096


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("killed", 'was killed by SIGKILL; last stage: "starting". The system kills what takes more memory than there is'),
        ("killed in the middle of a line", "was killed by SIGKILL"),
        ("segmentation fault", "was killed by SIGSEGV"),
        ("exits", r"ended without an answer (exit code 3)"),
        ("says nothing", "ended without an answer (exit code 0)"),
        ("closes its output", "closed its output without an answer"),
        ("garbage", "answered with something that is no message: 'Loading checkpoint shards: 100%'"),
        ("garbage bytes", "answered with something that is no message"),
        ("wrong table", "answered with something that is no message: '{\"answer\": 42}'"),
        ("wrong trace", "trace.blocks: 'two' instead of int"),
        ("no faults", "no list of faults"),
        ("endless line", "answered with a line without an end"),
        ("crash", r"crashed: RuntimeError: shapes\ndo not match"),
        ("loud and dead", "exit code 1"),
    ],
)
def test_what_goes_wrong_is_said(
    behaviour: str, says: str, traced: Traced, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_END_SECONDS", 0.3)
    monkeypatch.setattr(process, "_LONGEST_LINE_BYTES", 2**22)
    with pytest.raises(LabError) as caught:
        traced(behaviour)
    assert says in str(caught.value)
    assert "last stage" in caught.value.what
    assert list(temporary_folder.iterdir()) == []


def test_the_last_lines_of_standard_error_are_in_the_error_and_safe_to_print(traced: Traced) -> None:
    with pytest.raises(LabError) as caught:
        traced("exits")
    assert caught.value.details == ("Traceback", r"ImportError: no module named torch\x1b[31m")
    assert str(caught.value).endswith("\n  | Traceback\n  | ImportError: no module named torch\\x1b[31m")
    with pytest.raises(LabError) as caught:
        traced("loud and dead")
    assert caught.value.details == tuple(f"warning {number}" for number in range(99_992, 100_000))


def test_a_crash_brings_its_traceback(traced: Traced) -> None:
    with pytest.raises(LabError) as caught:
        traced("crash")
    assert caught.value.details == ("Traceback:", "  line 1", "RuntimeError")


def test_a_flood_on_standard_error_is_no_fault(traced: Traced) -> None:
    assert traced("loud").parameters == 1000


@pytest.mark.parametrize("behaviour", ["crashes at exit", "does not end"])
def test_what_happens_after_the_answer_does_not_matter(behaviour: str, traced: Traced) -> None:
    began = time.monotonic()
    assert traced(behaviour).parameters == 1000
    assert time.monotonic() - began < 10


def test_faults_are_placed_in_the_worksheet(traced: Traced) -> None:
    with pytest.raises(InputError) as caught:
        traced("faults")
    assert not isinstance(caught.value, UnsupportedError)
    assert [fault.where for fault in caught.value.faults] == ["job.toml: layout.pipeline", "model config: hidden_size"]
    with pytest.raises(UnsupportedError, match=r"^job\.toml: layout\.pipeline: 2, which a trace does not cover; allowed: 1\. Use fsdp\.$"):
        traced("unsupported")


def pids_of(stages: list[str]) -> list[int]:
    return [int(word) for word in stages[0].split()]


@pytest.mark.parametrize(("behaviour", "says"), [("hangs", "took longer than 1 s and was stopped"), ("killed with a child", "SIGKILL")])
def test_all_that_it_started_ends_with_it(behaviour: str, says: str, traced: Traced) -> None:
    stages: list[str] = []
    with pytest.raises(LabError, match=says):
        traced(behaviour, progress=stages.append, limit_seconds=1)
    worker, child = pids_of(stages)
    assert is_gone(worker)
    assert is_gone(child)


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("stop", [StoppedError, KeyboardInterrupt])
def test_an_exception_of_ours_ends_it(stop: type[BaseException], traced: Traced, temporary_folder: Path) -> None:
    stages: list[str] = []

    def interrupt(stage: str) -> None:
        stages.append(stage)
        raise stop

    with pytest.raises(stop):
        traced("hangs", progress=interrupt)
    assert all(map(is_gone, pids_of(stages)))
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_to_us_ends_it(number: signal.Signals, code: int, fake_worker: Path, temporary_folder: Path) -> None:
    script = (
        "from fullstep.job import settings_of, worksheet_from_mapping\n"
        "from fullstep.lab.trace import trace_step\n"
        "from fullstep.lab.trace.front import process, step\n"
        f"process.WORKER = ({str(fake_worker)!r},)\n"
        "step.require_libraries = lambda _: None\n"
        "it = settings_of(worksheet_from_mapping({'model': {'name': 'gpt2'}}))\n"
        "trace_step(it, {}, 'hangs', cache=False, progress=lambda text: print(text, flush=True))\n"
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "TMPDIR": str(temporary_folder)},
    )  # fmt: skip
    assert ours.stdout is not None
    pids = pids_of([ours.stdout.readline()])
    ours.send_signal(number)
    assert ours.wait(60) == code
    ours.stdout.close()
    assert all(map(is_gone, pids))
    assert list(temporary_folder.iterdir()) == []


def test_handlers_of_signals_are_as_before(traced: Traced) -> None:
    mine = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        traced()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, mine)
    before = signal.getsignal(signal.SIGTERM)
    traced()
    assert signal.getsignal(signal.SIGTERM) is before


def test_traces_in_threads(traced: Traced) -> None:
    traces: list[Trace] = []
    threads = [threading.Thread(target=lambda: traces.append(traced())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [trace.parameters for trace in traces] == [1000, 1000]


def test_the_request_and_the_environment(settings: Callable[..., Settings], tmp_path: Path) -> None:
    it = settings(machine={"gpu": "H100-SXM", "gpus": 8}, method={"kind": "lora", "targets": ["q_proj"]}, goal={"budget": "10"})
    trace_step(it, {"model_type": "x"}, "echo", full_depth=True, cache=False, snapshot=tmp_path / "seen.json")
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["request"].pop("snapshot").startswith(str(tmp_path))
    assert seen["request"] == {
        "worksheet": {
            "model": {"config": CONFIG}, "machine": {"gpu": "H100-SXM", "gpus": 8}, "method": {"kind": "lora", "targets": ["q_proj"]},
            "goal": {"budget": "10"},
        },
        "config": {"model_type": "x"}, "name": "echo", "full_depth": True,
    }  # fmt: skip
    assert seen["environment"].items() >= {
        "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }.items()  # fmt: skip


def test_a_large_request_to_a_worker_that_never_reads(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WORKER", ("-c", "import time; time.sleep(60)"))
    with pytest.raises(LabError, match="took longer than"):
        traced("x" * 10**6, limit_seconds=0.5)


def test_no_process_and_no_temporary_folder(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(LabError, match="cannot be started: No such file or directory"):
        traced()
