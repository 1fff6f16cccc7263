"""Commands that never load torch: how they end, what they print, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.formats.probe_record import probe_from_bytes, record_text
from fullstep.lab.probe.command.probe import NO_STEP, WantedCommand, _ran_out_in_output, probe_of_folder, run_command_probe
from fullstep.lab.probe.command.run import HOOK
from fullstep.lab.probe.command.seen import Seen, ran_out_of, ranks_of, read_seen
from fullstep.ledger.probe import Probe, Stretch

_UNSOUND = (
    '"memory": 7', '"memory": [[1, "forward"]]', '"memory": [[1, "forward", {"cpu": []}]]', '"memory": [[1, "A phase!", {"cpu": [0]}]]',
    '"memory": [[1, "forward", {"cuda:0": [1, 2, 3, -4]}]]', '"beside": []', '"counted": [[1]]', '"devices": {"cuda:0": 1}',
    '"out_of_memory": {"asked_bytes": 1}', '"host": 1e300', '"rank": true',
)  # fmt: skip
_FULLSTEP = str(Path(sys.executable).with_name("fullstep"))


def _probe(*command: str, silent_seconds: float = 60.0, steps: int | None = None) -> Probe:
    return run_command_probe(WantedCommand(command, steps, silent_seconds=silent_seconds))


def _python(program: str, **named: float) -> Probe:
    return _probe(sys.executable, "-c", program, **named)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_that_never_loads_torch() -> None:
    heard: list[str] = []
    program = "import sys; print('torch' in sys.modules, [p for p in sys.path if 'hook' in p])"
    probe = run_command_probe(WantedCommand((sys.executable, "-c", program)), hear=heard.append)
    assert heard == ["False []"]
    assert (probe.outcome, probe.ranks, probe.notes) == ("completed", (), (NO_STEP,))


def test_a_program_that_has_a_sitecustomize_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = __file__\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    heard: list[str] = []
    program = "import sitecustomize; print(mine, sitecustomize.__file__)"
    run_command_probe(WantedCommand((sys.executable, "-c", program)), hear=heard.append)
    assert heard == [" ".join([str(tmp_path / "sitecustomize.py")] * 2)]


def test_the_hook_waits_for_torch_and_tells_it_once(tmp_path: Path) -> None:
    """A package of that name is played: it is loaded as it would be, and what goes wrong afterwards is written down."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("here = 1\n", encoding="utf-8")
    program = "import importlib.util as util; util.find_spec('torch'); import torch; "
    program += "print(torch.here, type(torch.__loader__).__name__, len(vars(torch.__loader__)))"
    environment = {**os.environ, "PYTHONPATH": f"{HOOK}{os.pathsep}{tmp_path}", "FULLSTEP_PROBE_FOLDER": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "SourceFileLoader", "2"] and not done.stderr
    assert "torch" in next(tmp_path.glob("*.fault")).read_text()


def test_a_program_that_ends_with_an_error() -> None:
    probe = _python("import sys; print('so far'); sys.exit(7)")
    assert (probe.outcome, probe.reason) == ("rank_died", "the command ended with exit code 7 after step 0")
    assert probe.notes[-1] == "its output ended with:\nso far"  # one note, line by line


def test_one_that_a_signal_kills() -> None:
    for command in (("sh", "-c", "kill -9 $$"), ("sh", "-c", "sh -c 'kill -9 $$'; exit $?")):
        probe = _probe(*command)
        assert (probe.outcome, probe.reason) == ("rank_died", "the command was killed by SIGKILL after step 0")


def test_memory_that_runs_out_where_only_the_output_says_so() -> None:
    probe = _python("raise MemoryError")
    assert (probe.outcome, probe.reason) == ("out_of_memory", "rank 0 in step 1")
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which"
    probe = _python(f"import sys; print({text!r}); sys.exit(1)")
    assert probe.out_of_memory is not None
    assert (probe.out_of_memory.asked_bytes, probe.out_of_memory.limit_bytes) == (2 << 30, 79 << 30)
    assert _python(f"print({text!r})").outcome == "completed"


@pytest.mark.parametrize("closes", ["", "os.close(1); os.close(2); "])
def test_one_that_hangs(closes: str) -> None:
    begun = time.monotonic()
    probe = _python(f"import os, time; print(os.getpid(), flush=True); {closes}time.sleep(600)", silent_seconds=1.0)
    assert (probe.outcome, probe.reason) == ("hung", "no output and no step for 1 s: before any step")
    assert time.monotonic() - begun < 30
    assert not _is_running(int(probe.notes[1].rpartition("\n")[2]))


def test_a_step_is_a_sign_of_life() -> None:
    writes = (
        "import os, time\n"
        "for n in range(30):\n"
        "    open(os.path.join(os.environ['FULLSTEP_PROBE_FOLDER'], 'rank0-1.steps.jsonl'), 'a').write('{\"step\": 1}\\n')\n"
        "    time.sleep(0.1)\n"
    )
    assert _python(writes, silent_seconds=1.5).outcome == "completed"


def test_there_is_no_such_program() -> None:
    with pytest.raises(InputError, match="command after --"):
        _probe("/no/such/program")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_probe(tmp_path: Path, number: signal.Signals) -> None:
    told = tmp_path / "process"
    program = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); print('here', flush=True); time.sleep(600)"
    words = [_FULLSTEP, "probe", "--json", "--", sys.executable, "-c", program]
    front = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(600):
        if told.exists() and told.read_text():
            break
        time.sleep(0.05)
    front.send_signal(number)
    out, errors = front.communicate(timeout=60)
    assert front.returncode == 128 + number, errors
    record = json.loads(out)
    assert record["outcome"] == {"what": "stopped", "reason": f"by {number.name}"}
    assert not _is_running(int(told.read_text()))


def test_lines_that_a_kill_cut(tmp_path: Path) -> None:
    known = {"asked_bytes": 4, "allocated_bytes": 90, "reserved_bytes": 95, "limit_bytes": 100}
    lines: list[dict[str, Any]] = [
        {"process": 1, "rank": 3, "world_size": 4, "devices": {"cuda:0": {"name": "NVIDIA H200", "bytes": 100}}},
        {"step": 1, "seconds": None, "data": None, "host": 7, "memory": [[1, "backward", {"cuda:0": [9, 5, 12, 20]}]]},
        {"out_of_memory": known, "step": 2, "phase": "forward"},
        {"out_of_memory": dict.fromkeys(known), "step": 2, "phase": "forward"},
    ]
    text = "\n".join(map(json.dumps, lines)) + '\n{"step": 2, "sec'
    (tmp_path / "rank3-1.steps.jsonl").write_text(text, encoding="utf-8")
    (seen,) = read_seen(tmp_path)
    assert (seen.rank, seen.last_step, seen.end) == (3, 1, "")
    (rank,) = ranks_of([seen])
    assert (rank.device, rank.host_peak_bytes, rank.memory) == ("NVIDIA H200", 7, (Stretch(1, 1, "backward", 9, 5, 12, 20),))
    ran_out = ran_out_of(seen)
    assert ran_out is not None and (ran_out.phase, ran_out.enough_bytes) == ("forward", 94)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_what_a_command_leaves_behind_may_print_for_ever() -> None:
    """The command has ended, and so does its probe; nothing of it goes on."""
    noise = "import time\nwhile True: print('still here', flush=True); time.sleep(0.01)"
    program = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {noise!r}], start_new_session=True).pid, flush=True)"
    heard: list[str] = []
    begun = time.monotonic()
    run_command_probe(WantedCommand((sys.executable, "-c", program)), hear=heard.append)
    assert time.monotonic() - begun < 60
    assert not _is_running(int(next(line for line in heard if line.isdigit())))


def test_lines_of_strangers(tmp_path: Path) -> None:
    """What is no number, too deep, no file, or a pipe is passed over."""
    lines = ['{"rank": 0, "world_size": 1}', '{"step": "x", "seconds": "y"}', "[" * 100_000, '{"step": 3, "seconds": NaN, "data": 0}']
    lines += [f'{{"step": 9, "seconds": 1, "data": 0, {each}}}' for each in _UNSOUND]
    lines += ['{"step": 4, "seconds": -1, "data": 0}', '{"step": 5, "seconds": 0.5, "data": 0}']
    (tmp_path / "a.steps.jsonl").write_text("\n".join(lines), encoding="ascii")
    (tmp_path / "b.steps.jsonl").mkdir()
    os.mkfifo(tmp_path / "c.steps.jsonl")
    (seen,) = read_seen(tmp_path)
    assert [line["step"] for line in seen.steps] == [5]
    _is_read_again(probe_of_folder(str(tmp_path)))


def _is_read_again(probe: Probe) -> None:
    assert probe_from_bytes(record_text(probe).encode(), "a.json") == probe


def test_memory_that_ran_out_and_was_survived_is_not_what_ended_it() -> None:
    ran = SimpleNamespace(tail=("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes.",))
    ended, survived = Seen({}), Seen({}, caught=1)
    others = [Seen({}, error="ValueError: of its own"), Seen({}, error="RuntimeError: no memory", of_memory=True)]
    assert _ran_out_in_output(ran, [ended]) is not None and _ran_out_in_output(ran, others) is not None  # type: ignore[arg-type]
    assert _ran_out_in_output(ran, [survived]) is None and _ran_out_in_output(ran, others[:1]) is None  # type: ignore[arg-type]


_RAN_OUT = {"out_of_memory": {"asked_bytes": 64, "allocated_bytes": None, "reserved_bytes": None, "limit_bytes": None}, "phase": "forward"}


@pytest.mark.parametrize(
    ("after", "is_named"),
    [
        ([], True),
        ([{"error": "RuntimeError: no memory", "of_memory": True, "at": 5.0}], True),
        ([{"error": "ValueError: of its own", "of_memory": False, "at": 5.0}], False),
        ([{"survived": True}], False),
        ([{"survived": True}, {**_RAN_OUT, "step": 2}], True),
    ],
)
def test_memory_that_ran_out_is_named_only_where_it_was_the_end(tmp_path: Path, after: list[dict[str, Any]], is_named: bool) -> None:
    lines = [{"rank": 0, "world_size": 1}, {"step": 1, "seconds": None, "data": None}, {**_RAN_OUT, "step": 2}, *after]
    (tmp_path / "rank0-1.steps.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="ascii")
    (seen,) = read_seen(tmp_path)
    assert (ran_out_of(seen) is not None) == is_named
    assert seen.caught == sum("survived" in line for line in after)


@pytest.mark.parametrize("head", [{"rank": 5}, {"rank": 5, "world_size": 2}, {"rank": 0, "world_size": None}, {}])
def test_a_rank_beyond_the_number_that_is_said(tmp_path: Path, head: dict[str, Any]) -> None:
    """As of RANK without WORLD_SIZE: the record has as many as there must be."""
    lines = [{"process": 1, **head}, {"step": 1, "seconds": 2.0, "data": None}]
    (tmp_path / "rank5-1.steps.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="ascii")
    probe = probe_of_folder(str(tmp_path))
    assert probe.world_size == head.get("rank", 0) + 1
    _is_read_again(probe)


def test_a_command_that_is_too_long_for_a_record() -> None:
    probe = _probe("true", *["x" * 100_000], *["y"] * 5000)
    assert len(probe.command) == 4096
    _is_read_again(probe)
