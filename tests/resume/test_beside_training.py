"""Saves beside training: nothing that training does meanwhile is in them, and none is lost. By the order of events, not by clocks."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from alone import Alone, folders, whole
from processes import Nursery

from fullstep.resume import SaveError, checkpoints, storage
from fullstep.resume.manifest import MANIFEST
from fullstep.resume.saving import Saver

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
SECONDS = 60.0


class Gate:
    """Writing stands still until it is opened; what happens is noted in its order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.opened, self.events = threading.Event(), []
        plain_write, plain_publish = storage.DigestedStream.write, storage.write_manifest

        def write(stream: storage.DigestedStream, data: Any) -> int:
            assert self.opened.wait(SECONDS)
            if not self.events or not self.events[-1].startswith("writes"):
                self.events.append("writes")
            return plain_write(stream, data)

        def publish(place: Any, folder: str, manifest: Any) -> None:
            plain_publish(place, folder, manifest)
            self.events.append(f"published {manifest.step}")

        patch.setattr(storage.DigestedStream, "write", write)
        patch.setattr(storage, "write_manifest", publish)


def test_training_goes_on_while_the_disk_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    training = Alone(tmp_path, mode="thread")
    training.train()
    saved_at_one = training.digests()
    saved = training.save()
    gate.events.append("save has returned")
    training.train(3)
    gate.events.append("three steps")
    assert not saved.published and whole(tmp_path) == []
    gate.opened.set()
    assert training.checkpoints.finish() is saved and saved.published
    assert gate.events == ["save has returned", "three steps", "writes", "published 1"]
    again = Alone(tmp_path)
    assert again.resume() == 1 and again.digests() == saved_at_one
    again.train(3)
    assert again.losses == training.losses[1:] and again.digests() == training.digests()


def test_a_second_save_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    training = Alone(tmp_path, mode="thread")
    plain, asked = Saver.wait, threading.Event()

    def wait(saver: Saver) -> Any:
        if saver.seconds_under_way is not None:
            gate.events.append("the second waits")
            asked.set()
        return plain(saver)

    training.train()
    first = training.digests()
    training.save()
    training.train()
    second = training.digests()
    monkeypatch.setattr(Saver, "wait", wait)
    opening = threading.Thread(target=lambda: asked.wait(SECONDS) and gate.opened.set())
    opening.start()
    waiting = training.save()
    opening.join()
    assert waiting.waited_seconds > 0
    monkeypatch.setattr(Saver, "wait", plain)
    training.checkpoints.close()
    assert gate.events == ["the second waits", "writes", "published 1", "writes", "published 2"]
    again = Alone(tmp_path)
    assert again.checkpoints.load(1) is not None and again.digests() == first
    assert again.checkpoints.load(2) is not None and again.digests() == second


def test_what_changes_after_save_has_returned_is_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    training = Alone(tmp_path, mode="thread")
    for _ in range(2):  # the second time in the staging memory of the first
        gate.opened.clear()
        training.train()
        before = training.digests()
        training.save()
        with torch.no_grad():
            for parameter in training.model.parameters():
                parameter.fill_(7.0)
            for states in training.optimizer.state.values():
                for value in states.values():
                    value.fill_(7.0)
        training.optimizer.param_groups[0]["lr"] = 7.0
        training.scheduler.step()
        training.order.next()
        torch.rand(1), random.random()
        assert len([name for name, digest in training.digests().items() if before[name] != digest]) > 15
        gate.opened.set()
        training.checkpoints.finish()
        again = Alone(tmp_path)
        assert again.resume() == training.step and again.digests() == before
        training.checkpoints.load()


@pytest.mark.parametrize("asks", ["save", "finish", "close", "load"])
def test_a_failed_upload_is_told_to_whoever_asks_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: str) -> None:
    training = Alone(tmp_path, mode="thread")
    first = training.saved()
    training.train()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_manifest", _fails)
        training.save()
        threading_has_ended(training)
    with pytest.raises(SaveError, match=r"step 2 was not saved to .*step-00000002: Input/output error\. Training was not touched"):
        training.save() if asks == "save" else getattr(training.checkpoints, asks)()
    assert folders(tmp_path) == ["step-00000001"]
    third = training.saved()  # and that is told once
    again = Alone(tmp_path)
    assert again.checkpoints.load(1) is not None and again.digests() == first
    assert again.resume() == 3 and again.digests() == third


def threading_has_ended(training: Alone) -> None:
    """Without looking at what became of it."""
    upload = training.checkpoints._saver._upload
    assert upload is not None
    upload.future.exception(SECONDS)


def _fails(*_: Any) -> None:
    raise OSError(5, "Input/output error")


def test_an_upload_that_failed_does_not_keep_the_last_save_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the machine is taken away, there is no other chance."""
    training = Alone(tmp_path, mode="thread")
    training.train()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_manifest", _fails)
        training.save()
        threading_has_ended(training)
    training.checkpoints._stop.ask()
    assert training.checkpoints.must_stop()
    training.train()
    assert training.save().published  # at once
    assert "step 1 was not saved" in caplog.text and "is asked to stop, and saves again" in caplog.text
    assert whole(tmp_path) == [2]


def test_a_save_leaves_no_threads_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Alone(tmp_path, mode="thread")
    training.saved()
    before = set(threading.enumerate())
    training.saved()
    training.train()
    with monkeypatch.context() as patch:
        patch.setattr(storage.DigestedStream, "_write_chunk", _fails)
        training.save()
        with pytest.raises(SaveError):
            training.checkpoints.finish()
    training.checkpoints.close()
    left = {each for each in threading.enumerate() if each not in before}
    for each in left:  # the last one's thread is asked to end, and nobody waits for it
        each.join(SECONDS)
    assert not [each for each in threading.enumerate() if each not in before]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_of_real_ranks(tmp_path: Path, nursery: Nursery, mode: str) -> None:
    """Steps are made while nothing of the checkpoint is written; what is saved is the state from before."""
    gate = tmp_path / "gate"
    given = (tmp_path / "runs", "--mode", mode, "--wrap", "ddp", "--save-every", 2, "--steps", 4)
    training = nursery.start(*given, faults={"waits_for": str(gate)}, spawns=True)
    training.until(lambda event: event.get("step") == 4 and event.get("saving"))
    assert [event["step"] for event in training.events() if "loss" in event] == [1, 2, 3, 4]
    assert whole(tmp_path / "runs") == []
    assert not any(event.get("step") == 4 and "staged" in event for event in training.events())  # it waits for the first
    gate.touch()
    assert training.ended() == [0, 0], training.text()
    assert whole(tmp_path / "runs") == [4, 2]
    digests = {event["step"]: event["digest"] for event in training.events() if "digest" in event}
    (tmp_path / "runs" / "step-00000004" / MANIFEST).unlink()
    again = nursery.start(tmp_path / "runs", "--wrap", "ddp", "--steps", 4, "--save-every", 2)
    assert again.until(lambda event: "digest" in event) == {"step": 2, "digest": digests[2]}
    assert again.ended() == [0, 0]
    assert again.events()[-1] == {"closed": 4} and again.events()[-4] == {"step": 4, "digest": digests[4]}


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("fails", [False, True])
def test_an_end_without_close(tmp_path: Path, nursery: Nursery, mode: str, fails: bool) -> None:
    """Python waits for the upload as it ends. What became of it is said, and so that close() would have told more."""
    faults = {"slow_write": 0.001, **({"full_after": 10_000} if fails else {})}
    given = (tmp_path / "runs", "--mode", mode, "--wrap", "ddp", "--width", 200, "--save-every", 2, "--steps", 2, "--no-close")
    training = nursery.start(*given, ranks=1, faults=faults)
    assert training.ended() == [0], training.text()
    assert "End a training with close()" in training.text()
    if fails:
        assert "step 2 was not saved to step-00000002: rank 0: No space left on device" in training.text()
        assert whole(tmp_path / "runs") == []
    else:
        assert "step 2 was saved while Python ended" in training.text() and whole(tmp_path / "runs") == [2]


def test_process_mode_needs_torch_distributed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs torch\.distributed: start it by torchrun"):
        Alone(tmp_path, mode="process")
    with pytest.raises(ValueError, match="allowed are sync, thread, process"):
        Alone(tmp_path, mode="slowly")
    assert checkpoints.MANIFEST == MANIFEST
