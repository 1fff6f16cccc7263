"""Real trainings on processors, watched from inside by one line of theirs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader

from fullstep.errors import InputError
from fullstep.lab.probe.command.probe import probe_of_folder
from fullstep.probing import ProbeCallback, probing
from fullstep.probing import memory as memories
from fullstep.probing.watch import WATCHING, Watch

pytestmark = pytest.mark.real_classes


def _train(steps: int, *, count: int = 1, fails_at: int = 0) -> int:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
    halves = list(model.parameters())
    several = [torch.optim.SGD(halves, 1e-3)] if count == 1 else [torch.optim.SGD(halves[:2], 1e-3), torch.optim.SGD(halves[2:], 1e-3)]
    rows: Any = DataLoader([torch.randn(8) for _ in range(steps)], batch_size=1)
    done = 0
    for step, row in enumerate(rows, 1):
        model(row).sum().backward()
        if step == fails_at:
            torch.empty(1 << 50)
        for each in several:
            each.step()
            each.zero_grad()
        done += 1
    return done


def test_a_block(tmp_path: Path) -> None:
    before = torch.autograd.backward, sys.excepthook, threading.excepthook, len(optimizers._global_optimizer_pre_hooks)
    with probing(tmp_path / "new" / "folder"):
        assert _train(6) == 6
    probe = probe_of_folder(str(tmp_path / "new" / "folder"))
    assert (probe.outcome, probe.world_size, len(probe.ranks), probe.worksheet) == ("completed", 1, 1, None)
    assert [sample.step for sample in probe.ranks[0].steps] == [3, 4, 5, 6]
    assert all(0 < sample.data_seconds < sample.seconds for sample in probe.ranks[0].steps)
    assert probe.environment["optimizers"] == ["SGD"]
    assert probe.ranks[0].host_peak_bytes is None or probe.ranks[0].host_peak_bytes > 50_000_000
    assert (torch.autograd.backward, sys.excepthook, threading.excepthook, len(optimizers._global_optimizer_pre_hooks)) == before
    assert WATCHING == []


@pytest.mark.parametrize("count", [1, 2])
def test_a_block_is_left_after_enough_steps(tmp_path: Path, count: int) -> None:
    done = 0
    with probing(tmp_path, steps=3):
        done = _train(100, count=count)
    assert done == 0  # the function did not return
    assert [sample.step for sample in probe_of_folder(str(tmp_path)).ranks[0].steps] == [3]


def test_a_single_step_is_known_to_be_over_where_the_next_one_begins(tmp_path: Path) -> None:
    with probing(tmp_path, steps=1):
        _train(100)
    text = next(tmp_path.iterdir()).read_text()
    assert text.count('{"step": ') == 1 and '"end": "enough"' in text


def test_memory_that_runs_out(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="allocate memory"), probing(tmp_path):
        _train(5, fails_at=3)
    probe = probe_of_folder(str(tmp_path))
    assert (probe.outcome, probe.reason) == ("out_of_memory", "rank 0 in forward of step 3")
    assert probe.out_of_memory is not None and probe.out_of_memory.asked_bytes == 1 << 52


def test_memory_that_runs_out_before_another_error(tmp_path: Path) -> None:
    """The program catches the one, and the other ends it."""
    with pytest.raises(ZeroDivisionError), probing(tmp_path):
        try:
            _train(5, fails_at=3)
        except RuntimeError:
            print(1 // len([]))
    assert probe_of_folder(str(tmp_path)).outcome == "out_of_memory"  # one led to the other
    with pytest.raises(ZeroDivisionError), probing(tmp_path / "again"):
        with pytest.raises(RuntimeError):
            _train(5, fails_at=3)
        print(1 // len([]))
    probe = probe_of_folder(str(tmp_path / "again"))
    assert (probe.outcome, probe.out_of_memory) == ("rank_died", None)


def test_two_watches_of_one_process_leave_a_file_each(tmp_path: Path) -> None:
    """As where a program runs another one in its place, which keeps the process's number."""
    for _ in range(2):
        with probing(tmp_path):
            _train(4)
    probe = probe_of_folder(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2 and len(probe.ranks) == 1
    assert "rank 0 is that of 2 processes: of the one with most steps" in probe.notes


def test_an_error_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), probing(tmp_path):
        _train(2)
        raise ZeroDivisionError("of its own")
    probe = probe_of_folder(str(tmp_path))
    assert (probe.outcome, probe.reason) == ("rank_died", "rank 0: ZeroDivisionError: of its own")


def test_a_fault_of_the_watch_does_not_reach_the_program(tmp_path: Path) -> None:
    class Breaks(memories.Memory):
        def close(self) -> memories.Figures:
            raise ArithmeticError("inside")

    watch = Watch(tmp_path, memory=Breaks())
    watch.begin()
    try:
        assert _train(4) == 4
    finally:
        watch.end()
    assert '{"fault": "ArithmeticError: inside"}' in next(tmp_path.iterdir()).read_text()


def test_nothing_is_counted_twice_where_blocks_lie_in_one_another(tmp_path: Path) -> None:
    with probing(tmp_path / "outer"), probing(tmp_path / "inner"):
        _train(3)
    assert not (tmp_path / "inner").exists()
    assert [sample.step for sample in probe_of_folder(str(tmp_path / "outer")).ranks[0].steps] == [3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_optimizer_step_that_is_compiled_goes_on(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)
    step = torch.compile(optimizer.step, backend="eager")
    with probing(tmp_path):
        for _ in range(2):
            weight.sum().backward()
            step()
            optimizer.zero_grad()
    assert weight.tolist() == pytest.approx([0.8] * 3)


@pytest.mark.parametrize("steps", [None, 4])
def test_transformers_trainer(tmp_path: Path, steps: int | None) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments  # noqa: PLC0415

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )  # fmt: skip
    row = {"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=6, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[], use_cpu=True,
        save_steps=3, eval_strategy="steps", eval_steps=2, disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip
    callback: Any = ProbeCallback(tmp_path / "seen", steps=steps)
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=[row] * 24, eval_dataset=[row] * 4, callbacks=[callback])  # type: ignore[arg-type]
    trainer.train()
    assert trainer.state.global_step == (steps or 6)
    probe = probe_of_folder(str(tmp_path / "seen"))
    assert probe.outcome == "completed"
    assert [sample.step for sample in probe.ranks[0].steps] == list(range(3, (steps or 6) + 1))
    assert probe.ranks[0].save_seconds is not None and probe.ranks[0].save_seconds > 0
    lines = next((tmp_path / "seen").iterdir()).read_text().splitlines()
    told = [line.partition('"beside": "')[2].partition('"')[0] for line in lines if "beside" in line]
    assert told[0] == "load" and told.count("evaluation") == (steps or 6) // 2


def test_a_folder_without_anything(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="--seen"):
            probe_of_folder(str(folder))
