"""Real steps on processors, instant by instant beside a trace of the same worksheet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fullstep.api.probed import Probed, probe
from fullstep.formats.probe_record import read_all
from fullstep.job import worksheet_from_mapping
from fullstep.ledger.probe import Probe

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
MODEL = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
SHEET = {"model": {"config": MODEL}, "batch": {"sequence_tokens": 128, "micro_batch": 2, "accumulation": 2}}
FULLSTEP = Path(sys.executable).with_name("fullstep")
STEP = ("forward", "loss", "backward", "second_forward", "optimizer_step")


def _probed(layout: str, ranks: int, **settings: Any) -> Probed:
    return probe(worksheet_from_mapping({**SHEET, "layout": {"strategy": layout}}), cpu=ranks, steps=3, **settings)


def test_every_instant_is_the_traced_one() -> None:
    """More ranks and layouts: slow_probe.py, and test_session.py without gloo."""
    ranks = 1
    found = _probed("single", ranks, evaluate=True)
    assert found.probe.outcome == "completed" and len(found.probe.ranks) == ranks
    lines = {line.what: line for line in found.lines}
    assert set(lines) >= {*STEP, "load", "evaluation"}
    for at in STEP:
        assert lines[at].traced == pytest.approx(lines[at].measured, rel=0.02), at
    for rank in found.probe.ranks:
        (sample,) = rank.steps  # the first two are counted, and not timed
        assert sample.step == 3 and sample.tokens == 2 * 2 * 128 and 0 <= sample.data_seconds < sample.seconds
    assert found.probe.environment["released_unseen_bytes"] < 0.01 * lines["backward"].measured
    assert found.probe.parameters == 276_032  # 2 x 1,000 x 64 + 4 x (2 x 64 x 64 + 2 x 64 x 32 + 3 x 64 x 128 + 2 x 64) + 64


def test_too_little_memory(tmp_path: Path) -> None:
    """A request that no machine can grant."""
    sheet = {**SHEET, "batch": {"sequence_tokens": 10**6, "micro_batch": 10**6}}
    found = probe(worksheet_from_mapping(sheet), cpu=1, steps=3, traces=False)
    assert found.probe.outcome == "out_of_memory"
    ran_out = found.probe.out_of_memory
    assert ran_out is not None and (ran_out.rank, ran_out.step, ran_out.phase) == (0, 1, "inputs")
    assert ran_out.asked_bytes == 8 * 10**12
    assert ran_out.allocated_bytes == 2 * 276_032 + 2 * 8 * 4  # bfloat16 weights, and rotary frequencies that are kept twice
    assert ran_out.enough_bytes == 8 * 10**12 + ran_out.allocated_bytes


def test_memory_that_runs_out_while_libraries_load() -> None:
    """On processors the limit is that of the process, which imports transformers' classes before it has a model. Seldom it is code in C
    that gets none, and ends the interpreter without a word: then another one is probed."""
    tries = (_probed("single", 1, traces=False, limit_gib=0.001).probe for _ in range(3))
    found = next((each for each in tries if each.outcome != "rank_died"), None)
    assert found is not None
    assert (found.outcome, found.reason) == ("out_of_memory", "rank 0 while loading")
    assert found.out_of_memory is not None and found.out_of_memory.limit_bytes == 2**30 // 1000


def test_a_rank_that_says_nothing() -> None:
    """Loading torch alone takes longer than it is given here."""
    kept: list[Probe] = []
    found = _probed("single", 1, traces=False, silent_seconds=0.05, keep=kept.append).probe
    assert found.outcome == "hung" and "said nothing for 0.05 s" in found.reason and kept == [found]


def test_a_rank_that_dies_and_a_probe_that_is_stopped(tmp_path: Path) -> None:
    assert _interrupted(tmp_path / "killed", "rank", signal.SIGKILL) == 4
    assert _interrupted(tmp_path / "stopped", "front", signal.SIGTERM) == 128 + signal.SIGTERM
    (killed,), (stopped,) = read_all(str(tmp_path / "killed")), read_all(str(tmp_path / "stopped"))
    assert killed.probe is not None and killed.probe.outcome == "rank_died" and "was killed by SIGKILL" in killed.probe.reason
    assert stopped.probe is not None and (stopped.probe.outcome, stopped.probe.reason) == ("stopped", "by SIGTERM")
    for each in (killed.probe, stopped.probe):  # steps were counted and timed before
        assert [rank.rank for rank in each.ranks] == [0, 1] and each.parameters == 276_032
        assert all({stretch.step for stretch in rank.memory} == {0, 1, 2} and len(rank.steps) > 3 for rank in each.ranks)


def _interrupted(evidence: Path, whom: str, number: signal.Signals) -> int:
    """Exit code of a probe of many steps; nothing of it is left."""
    sheet = evidence.with_suffix(".json")
    sheet.write_text(str(SHEET).replace("'", '"'))
    words = [FULLSTEP, "probe", sheet, "--cpu", "2", "--steps", "100000", "--no-trace", "--evidence", evidence]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as front:
        try:
            ranks = _ranks_of(front.pid)
            os.kill(ranks[0] if whom == "rank" else front.pid, number)
            _, said = front.communicate(timeout=120)
            assert b"the record is " in said and (b"steps timed (" in said) == (whom == "front")
        finally:
            front.terminate()
    assert [rank for rank in ranks if _is_running(rank)] == []
    return front.returncode


def _is_running(process: int) -> bool:
    """Whoever adopted it may not have asked yet how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _ranks_of(front: int) -> list[int]:
    """Once there are two that have timed a few steps."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        found = [
            each for each in _below(front) if b"fullstep.lab.probe.worker" in _words(each) and b"torch.distributed.run" not in _words(each)
        ]
        if len(found) == 2 and all(_steps_of(each) > 3 for each in found):
            return found
        time.sleep(0.1)
    raise AssertionError("no ranks")


def _below(process: int) -> list[int]:
    children = [int(each) for path in Path(f"/proc/{process}/task").glob("*/children") for each in path.read_text().split()]
    return [*children, *(each for child in children for each in _below(child))]


def _words(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _steps_of(process: int) -> int:
    """That any rank of its probe has timed at least, as far as is known in the folder of its task."""
    words = _words(process).split(b"\0")
    files = list(Path(os.fsdecode(words[-2])).parent.glob("rank*.known.jsonl")) if len(words) > 1 else []
    return min((path.read_text().count('"steps"') for path in files), default=0)
