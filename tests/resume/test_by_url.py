"""Checkpoints at a URL, through the storage layers of torch for fsspec."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from alone import Alone, whole
from processes import Nursery
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

from fullstep.resume import SaveError, storage

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]


@pytest.fixture
def url() -> Iterator[str]:
    """In the memory of this process."""
    files = fsspec.filesystem("memory")
    yield "memory://bucket/runs"
    files.rm("/bucket", recursive=True)


def _folders(url: str) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in fsspec.filesystem("memory").ls(url, detail=False))


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_saved_kept_and_resumed(url: str, mode: str) -> None:
    assert Alone(url).resume() == 0
    training = Alone(url, mode=mode)
    for step in (1, 2, 3):
        saved = training.saved()
        assert whole(url) == list(range(step, max(0, step - 2), -1))
    assert _folders(url) == ["step-00000002", "step-00000003"]
    again = Alone(url)
    assert again.resume() == 3 and again.digests() == saved


def test_by_the_layers_of_torch(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    for kind, name in ((FsspecWriter, "finish"), (FsspecReader, "read_data")):
        monkeypatch.setattr(kind, name, _noting(getattr(kind, name), f"{kind.__name__}.{name}", used))
    Alone(url).saved()
    Alone(url).resume()
    assert used == ["FsspecWriter.finish", "FsspecReader.read_data"]


def _noting(plain: Any, name: str, used: list[str]) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        used.append(name)
        return plain(*given, **named)

    return call


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "fullstep.json"])
def test_damage_is_found(url: str, name: str) -> None:
    training = Alone(url)
    first = training.saved()
    training.saved()
    files = fsspec.filesystem("memory")
    path = f"{url}/step-00000002/{name}"
    data = bytearray(files.cat_file(path))
    data[len(data) // 2] ^= 1
    files.pipe_file(path, bytes(data))
    again = Alone(url)
    assert again.resume() == 1 and again.digests() == first
    files.rm(path)
    again = Alone(url)
    assert again.resume() == 1 and again.digests() == first


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_store_that_fails(url: str, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """With an error of its own, as the clients of object stores have, which no other rank could read."""

    class ClientError(Exception):
        def __init__(self, response: dict[str, str], operation: str) -> None:
            super().__init__(f"{operation}: {response['code']}")

    def fails(stream: Any, data: Any) -> int:
        raise ClientError({"code": "SlowDown"}, "PutObject")

    training = Alone(url, mode=mode)
    first = training.saved()
    training.train()
    with monkeypatch.context() as patch:
        patch.setattr(storage.DigestedStream, "write", fails)
        with pytest.raises(SaveError, match=r"not saved to memory://bucket/runs/step-00000002: ClientError: PutObject: SlowDown"):
            training.save()
            training.checkpoints.finish()
    assert _folders(url) == ["step-00000001"]
    again = Alone(url)
    assert again.resume() == 1 and again.digests() == first


def test_what_another_save_has_claimed_is_not_written_into(url: str) -> None:
    """An object store has no empty folders: without a mark, a claim would not be seen before the first file is complete."""
    training, other = Alone(url), Alone(url)
    assert training.checkpoints._place.claim("step-00000001")
    other.saved()
    assert _folders(url) == ["step-00000001.1"]  # and what was claimed and left went, being older
    assert whole(url) == [1]


@pytest.mark.parametrize("mode", ["sync", "process"])
def test_two_ranks(tmp_path: Path, nursery: Nursery, mode: str) -> None:
    url = f"file://{tmp_path}/runs"
    training = nursery.start(url, "--mode", mode, "--wrap", "fsdp", "--steps", 4)
    assert training.ended() == [0, 0], training.text()
    digests = {event["step"]: event["digest"] for event in training.events() if "digest" in event}
    assert whole(url) == whole(tmp_path / "runs") == [4, 2]  # the same files, whoever reads them
    again = nursery.start(url, "--wrap", "fsdp", "--steps", 4)
    assert again.until(lambda event: "digest" in event) == {"step": 4, "digest": digests[4]}
    assert again.ended() == [0, 0]
