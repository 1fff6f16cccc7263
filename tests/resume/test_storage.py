"""What is written is on disk before it counts, and errors can travel to other ranks."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from pathlib import Path

import pytest
from alone import Alone

from fullstep.resume import read_manifest
from fullstep.resume.places import LocalPlace
from fullstep.resume.storage import _plain_errors

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_every_byte_is_on_disk_before_the_manifest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Each file is synced when all of it was written: what a buffer held back would come later, or never."""
    synced: dict[str, int] = {}
    order: list[str] = []
    plain_sync, plain_replace = os.fsync, Path.replace

    def sync(handle: int) -> None:
        found = os.fstat(handle)
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name  # noqa: PTH115 - of an open file
        if stat.S_ISREG(found.st_mode):
            synced[name] = found.st_size
        order.append(name)
        plain_sync(handle)

    def replace(path: Path, target: Path) -> Path:
        order.append(f"name of {target.name}")
        return plain_replace(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    Alone(tmp_path, mode=mode).saved()
    files = read_manifest(LocalPlace(tmp_path), "step-00000001").files
    assert synced["__0_0.distcp"] == files["__0_0.distcp"].bytes and synced[".metadata.tmp"] == files[".metadata"].bytes
    published = order.index("name of fullstep.json")
    assert {"__0_0.distcp", ".metadata.tmp", "step-00000001"} <= set(order[:published]) and order[published + 1] == "step-00000001"


class ClientError(Exception):
    """As the clients of object stores have it: it can be pickled, and not be unpickled."""

    def __init__(self, response: dict[str, str], operation: str) -> None:
        super().__init__(f"{operation}: {response['code']}")


class LocalError(OSError):
    """With more than a number and a text."""

    def __init__(self, number: int, more: object) -> None:
        super().__init__(number, os.strerror(number))
        self.more = more


def test_errors_travel() -> None:
    client, local = ClientError({"code": "SlowDown"}, "PutObject"), LocalError(errno.ENOSPC, lambda: None)
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(client))
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(local)
    for error, said in ((client, "PutObject: SlowDown"), (local, "[Errno 28] No space left on device"), (OSError("odd"), "odd")):
        with pytest.raises((RuntimeError, OSError)) as caught, _plain_errors():
            raise error
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value) and said in str(again)
        assert getattr(again, "errno", None) == getattr(error, "errno", None)


def test_what_the_disk_said_first() -> None:
    """Torch's archive is closed after an error, and says another thing."""
    with pytest.raises(OSError, match="No space left on device"), _plain_errors():
        try:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            raise RuntimeError("unexpected pos 321 vs 235")  # noqa: B904 - as it comes
