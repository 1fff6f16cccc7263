"""The collectives on one rank, what is noticed, and what torch says where a backend does not have one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from fullstep.errors import LabError
from fullstep.lab.link.worker.collectives import Buffers


@pytest.fixture
def buffers(tmp_path: Path) -> Iterator[Buffers]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield Buffers(64, torch.device("cpu"))
    dist.destroy_process_group()


def test_what_is_right_passes(buffers: Buffers) -> None:
    assert [buffers.try_out(name, 64) for name in ("all_reduce", "all_gather", "reduce_scatter")] == ["", "", ""]


def test_what_is_wrong_is_noticed(buffers: Buffers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_gather_single", lambda *_: None)
    with pytest.raises(LabError, match="all_gather on 1 ranks brought wrong numbers"):
        buffers.try_out("all_gather", 64)


@pytest.mark.parametrize(
    ("error", "is_missing"),
    [
        (RuntimeError("Backend gloo does not support reduce_scatter\nmore"), True),
        (NotImplementedError("reduce_scatter is not implemented"), True),
        (RuntimeError("Connection closed by peer"), False),
        (dist.DistBackendError("operation not supported"), False),
    ],
)
def test_a_collective_that_is_not_there_is_told_from_one_that_failed(
    error: Exception, is_missing: bool, buffers: Buffers, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(dist, "reduce_scatter_single", refuse)
    if is_missing:
        assert buffers.try_out("reduce_scatter", 64) == str(error).splitlines()[0]
    else:
        with pytest.raises(type(error)):
            buffers.try_out("reduce_scatter", 64)
