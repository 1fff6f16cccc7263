"""Several ranks, deaths and launchers: minutes. Run by `make test-slow`."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from fullstep.lab.probe.command.probe import WantedCommand, run_command_probe
from fullstep.ledger.probe import Probe

_TRAINING = str(Path(__file__).with_name("training.py"))
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def _probe(*command: str, steps: int | None = None, silent_seconds: float = 120.0) -> Probe:
    return run_command_probe(WantedCommand(command, steps, silent_seconds=silent_seconds))


def _steps(probe: Probe) -> list[list[int]]:
    return [[sample.step for sample in rank.steps] for rank in probe.ranks]


@pytest.mark.parametrize("steps", [None, 4])
def test_two_ranks(steps: int | None) -> None:
    probe = _probe(*_TORCHRUN, _TRAINING, "6" if steps is None else "100000", steps=steps)
    assert (probe.outcome, probe.world_size, [rank.rank for rank in probe.ranks]) == ("completed", 2, [0, 1])
    assert _steps(probe) == [list(range(3, (steps or 6) + 1))] * 2


def test_a_rank_that_is_killed() -> None:
    probe = _probe(*_TORCHRUN, _TRAINING, "6", "dies")
    assert (probe.outcome, probe.reason) == ("rank_died", "rank 1 was killed by SIGKILL after step 2")


def test_a_rank_that_fails() -> None:
    probe = _probe(*_TORCHRUN, _TRAINING, "6", "fails")
    assert (probe.outcome, probe.reason) == ("rank_died", "rank 1 ended after step 2: ValueError: a fault of its own")


def test_a_rank_whose_memory_runs_out() -> None:
    probe = _probe(*_TORCHRUN, _TRAINING, "6", "memory")
    assert (probe.outcome, probe.reason) == ("out_of_memory", "rank 1 in forward of step 3")


def test_a_rank_that_hangs() -> None:
    probe = _probe(*_TORCHRUN, _TRAINING, "6", "hangs", silent_seconds=30.0)
    assert probe.outcome == "hung" and probe.reason.endswith("rank 0 after step 2, rank 1 after step 2")


def test_two_optimizers_in_a_step() -> None:
    probe = _probe(sys.executable, _TRAINING, "6", "two")
    assert _steps(probe) == [[3, 4, 5, 6]]
    assert probe.environment["optimizers"] == ["AdamW", "SGD"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_the_program_starts_itself(tmp_path: Path, method: str) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import os, sys, torch.multiprocessing as several\n"
        f"sys.path.insert(0, {str(Path(_TRAINING).parent)!r})\n"
        "import training\n"
        "def go(rank):\n"
        "    os.environ.update(RANK=str(rank), WORLD_SIZE='2', LOCAL_WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=sys.argv[1])\n"
        "    sys.argv = ['training.py', '100000']\n"
        "    training.main()\n"
        "if __name__ == '__main__':\n"
        f"    several.start_processes(go, nprocs=2, start_method={method!r})\n",
        encoding="utf-8",
    )
    probe = _probe(sys.executable, str(script), str(20000 + os.getpid() % 20000 + (method == "fork")), steps=4)
    assert (probe.outcome, _steps(probe)) == ("completed", [[3, 4]] * 2)


_TRAINER = """
import sys
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
row = {"input_ids": [1, 2, 3, 4] * 8, "labels": [1, 2, 3, 4] * 8}
arguments = TrainingArguments(
    sys.argv[1], max_steps=int(sys.argv[2]), per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[], use_cpu=True,
    save_strategy="no", disable_tqdm=True, dataloader_num_workers=int(sys.argv[3]),
)
if __name__ == "__main__":
    Trainer(LlamaForCausalLM(config), arguments, train_dataset=[row] * 64).train()
"""


@pytest.mark.parametrize(("launch", "steps", "workers"), [((), None, "0"), ((), 4, "1"), (_TORCHRUN[1:], 4, "0")])
def test_transformers_trainer(tmp_path: Path, launch: tuple[str, ...], steps: int | None, workers: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(_TRAINER, encoding="utf-8")
    ranks = 2 if launch else 1
    probe = _probe(sys.executable, *launch, str(script), str(tmp_path / "run"), "6" if steps is None else "100000", workers, steps=steps)
    assert (probe.outcome, probe.model, probe.world_size) == ("completed", "train.py", ranks)
    assert _steps(probe) == [list(range(3, (steps or 6) + 1))] * ranks
    assert all(0 < sample.data_seconds < sample.seconds for rank in probe.ranks for sample in rank.steps)


_TIMED = """
import time, torch
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([weight], 1e-3)
seconds = []
for _ in range(2000):
    begun = time.perf_counter()
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - begun)
print(sorted(seconds)[len(seconds) // 2])
"""


def test_it_costs_less_than_half_a_millisecond_a_step(capfd: pytest.CaptureFixture[str]) -> None:
    bare, watched = [], []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", _TIMED], capture_output=True, text=True, check=True)
        bare.append(float(done.stdout))
        heard: list[str] = []
        run_command_probe(WantedCommand((sys.executable, "-c", _TIMED)), hear=heard.append)
        watched.append(float(heard[-1]))
    more = statistics.median(watched) - statistics.median(bare)
    with capfd.disabled():
        print(f"\na step of {statistics.median(bare) * 1e6:.0f} µs takes {more * 1e6:.0f} µs more")
    assert more < 5e-4
