"""The callback in real runs of transformers' Trainer."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from fullstep.resume import SealedCheckpoints
from fullstep.resume.errors import LoadError, SaveError
from fullstep.resume.manifest import read_manifest
from fullstep.resume.sealed import faults_of
from fullstep.resume.trainer import _missing

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
_STEPS = 6


class _At(transformers.TrainerCallback):
    """Does something after a step."""

    def __init__(self, step: int, act: Any) -> None:
        self._step, self._act = step, act

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if state.global_step == self._step:
            self._act(control)
        return control


def _stop(control: Any) -> None:
    control.should_training_stop = True


def _train(folder: Path, *callbacks: Any, resume: str | None = None, adapt: Any = lambda model: model, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, attention_dropout=0.1
    )
    model = adapt(transformers.LlamaForCausalLM(config))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (40, 8), generator=torch.Generator().manual_seed(1))]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=_STEPS, per_device_train_batch_size=2, save_strategy="steps", save_steps=2, report_to=[],
        use_cpu=True, disable_tqdm=True, logging_steps=1, learning_rate=1e-2, **settings,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def _weights(trainer: Any) -> dict[str, Any]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def _names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.is_dir())


@pytest.fixture(name="uninterrupted", scope="module")
def _uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole")
    return _weights(_train(folder, SealedCheckpoints(folder)))


def test_a_resumed_run_ends_like_the_uninterrupted_one(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    _train(tmp_path, SealedCheckpoints(tmp_path), _At(4, _stop))
    sealed = SealedCheckpoints(tmp_path)
    newest = sealed.newest()
    assert newest == str(tmp_path / "checkpoint-4")
    trainer = _train(tmp_path, sealed, resume=newest)
    assert trainer.state.global_step == _STEPS
    assert _same(_weights(trainer), uninterrupted)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors", "trainer_state.json"])
def test_a_lost_file_is_noticed(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    _train(tmp_path, SealedCheckpoints(tmp_path), _At(4, _stop))
    (tmp_path / "checkpoint-4" / name).unlink()
    assert SealedCheckpoints(tmp_path).newest() == str(tmp_path / "checkpoint-2")
    assert f"{name} is missing" in caplog.text


def test_a_flipped_bit_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _train(tmp_path, SealedCheckpoints(tmp_path), _At(4, _stop))
    file = tmp_path / "checkpoint-4" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    assert SealedCheckpoints(tmp_path).newest() == str(tmp_path / "checkpoint-2")
    assert "other bytes than were written" in caplog.text


def test_a_folder_that_was_not_sealed_is_passed_over_and_put_aside(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    _train(tmp_path, SealedCheckpoints(tmp_path), _At(4, _stop))
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-6" / "trainer_state.json").write_text("{}")
    sealed = SealedCheckpoints(tmp_path)
    newest = sealed.newest()
    assert newest == str(tmp_path / "checkpoint-4")
    assert _same(_weights(_train(tmp_path, sealed, resume=newest)), uninterrupted)
    assert _names(tmp_path) == ["aside-checkpoint-6", "checkpoint-4", "checkpoint-6"]
    assert faults_of(tmp_path / "checkpoint-6") == []


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    _train(tmp_path, SealedCheckpoints(tmp_path, keep=1))
    assert _names(tmp_path) == ["checkpoint-6"]


def test_what_cannot_be_taken_away_does_not_end_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("fullstep.resume.places.LocalPlace.remove", refuse)
    _train(tmp_path, SealedCheckpoints(tmp_path, keep=1))
    assert SealedCheckpoints(tmp_path).newest() == str(tmp_path / "checkpoint-6")
    assert "older checkpoints could not be taken away" in caplog.text


def test_a_signal_saves_the_step_and_ends_training(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    first = SealedCheckpoints(tmp_path)
    trainer = _train(tmp_path, _At(3, lambda _: os.kill(os.getpid(), signal.SIGTERM)), first)
    assert trainer.state.global_step == 3
    assert signal.getsignal(signal.SIGTERM) is before
    assert first.notice is not None and first.notice.suffices
    sealed = SealedCheckpoints(tmp_path)
    assert sealed.newest() == str(tmp_path / "checkpoint-3")
    assert _same(_weights(_train(tmp_path, sealed, resume=sealed.newest())), uninterrupted)


@pytest.mark.parametrize("settings", [{"save_total_limit": 1}, {"save_only_model": True}])
def test_settings_under_which_nothing_comes_back_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="leave it unset"):
        _train(tmp_path, SealedCheckpoints(tmp_path), **settings)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the Trainer writes to"):
        _train(tmp_path / "a", SealedCheckpoints(tmp_path / "b"))


def test_what_the_trainer_does_not_write_ends_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.Trainer, "_save_rng_state", lambda *_: None)
    with pytest.raises(SaveError, match=r"rng_state\.pth is not among its files"):
        _train(tmp_path, SealedCheckpoints(tmp_path))


def test_files_of_fsdp_and_deepspeed_are_known() -> None:
    fsdp = ["optimizer_0/__0_0.distcp", "rng_state_0.pth", "rng_state_1.pth", "scheduler.pt", "trainer_state.json"]
    assert _missing(fsdp, 2) == []
    assert _missing(fsdp, 3) == ["rng_state_2.pth"]
    assert _missing(["global_step5/zero_pp_rank_0.pt", "rng_state.pth", "trainer_state.json"], 1) == []


def test_the_base_of_adapters(tmp_path: Path) -> None:
    """The Trainer saves of a peft model the adapters alone, and would go on with them on another base."""
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415

    def adapted(model: Any) -> Any:
        return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))

    _train(tmp_path, SealedCheckpoints(tmp_path), _At(4, _stop), adapt=adapted)
    assert len(read_manifest(str(tmp_path), "checkpoint-4").frozen) == 1
    assert _train(tmp_path, SealedCheckpoints(tmp_path), _At(5, _stop), resume=str(tmp_path / "checkpoint-4"), adapt=adapted)
    with pytest.raises(LoadError, match="parameters that do not train are not those with which it was saved"):
        _train(tmp_path, SealedCheckpoints(tmp_path), resume=str(tmp_path / "checkpoint-4"), adapt=lambda model: adapted(model.half()))
