"""The short way of reading against torch's own reader, item by item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint import CheckpointException, FileSystemReader
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

from fullstep.resume.reading import DirectReader, rows_of

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
_TENSORS = {
    "matrix": torch.arange(35.0).reshape(7, 5),
    "cube": torch.arange(24, dtype=torch.int64).reshape(2, 3, 4),
    "half": torch.arange(12.0).reshape(3, 4).bfloat16(),
    "flags": torch.tensor([True, False, True]),
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0, 4),
    "turned": torch.arange(35.0).reshape(7, 5).t(),
    "part": torch.arange(100.0)[10:20],
    "complex": torch.arange(4.0).reshape(2, 2).to(torch.complex64),
}
_STRAIGHT = {"matrix", "cube", "half", "flags", "scalar", "empty", "part"}


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading") / "saved"
    dcp.save({**_TENSORS, "text": "a blob"}, checkpoint_id=folder, no_dist=True)
    return folder


class _Planner:
    """Gives one tensor to fill."""

    def __init__(self, target: torch.Tensor) -> None:
        self.target, self.committed = target, False

    def resolve_tensor(self, _item: ReadItem) -> torch.Tensor:
        return self.target

    def commit_tensor(self, _item: ReadItem, tensor: torch.Tensor) -> None:
        assert tensor.data_ptr() == self.target.data_ptr()
        self.committed = True


def _item(name: str, offsets: tuple[int, ...], lengths: tuple[int, ...]) -> ReadItem:
    index = MetadataIndex(name, torch.Size([0] * len(offsets)), 0)
    return ReadItem(LoadItemType.TENSOR, index, torch.Size([0] * len(offsets)), index, torch.Size(offsets), torch.Size(lengths))


def _read(folder: Path, item: ReadItem, kind: type[FileSystemReader], dtype: torch.dtype) -> tuple[torch.Tensor, int]:
    """(what was read, how many items were left to torch)."""
    reader = kind(folder)
    reader.set_up_storage_reader(reader.read_metadata(), is_coordinator=True)
    planner: Any = _Planner(torch.full(tuple(item.lengths), 1, dtype=dtype))
    left: list[int] = []
    if kind is DirectReader:
        whole = FileSystemReader.read_data

        def count(self: Any, plan: LoadPlan, planner: Any) -> Any:
            left.append(len(plan.items))
            return whole(self, plan, planner)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FileSystemReader, "read_data", count)
            reader.read_data(LoadPlan([item]), planner).wait()
    else:
        reader.read_data(LoadPlan([item]), planner).wait()
    assert planner.committed
    return planner.target, sum(left)


@pytest.mark.parametrize("name", _TENSORS)
def test_whole_tensors(folder: Path, name: str) -> None:
    tensor = _TENSORS[name]
    item = _item(name, (0,) * tensor.dim(), tuple(tensor.shape))
    found, left = _read(folder, item, DirectReader, tensor.dtype)
    assert torch.equal(found, tensor)
    assert left == (0 if name in _STRAIGHT else 1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_parts_of_tensors(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(_TENSORS)))
    shape = _TENSORS[name].shape
    offsets = tuple(data.draw(st.integers(0, max(0, size - 1))) for size in shape)
    lengths = tuple(data.draw(st.integers(min(1, size), size - at)) for at, size in zip(offsets, shape, strict=True))
    item = _item(name, offsets, lengths)
    found, left = _read(folder, item, DirectReader, _TENSORS[name].dtype)
    expected, _ = _read(folder, item, FileSystemReader, _TENSORS[name].dtype)
    assert torch.equal(found, expected)
    assert left == int(name not in _STRAIGHT or rows_of(tuple(shape), offsets, lengths) is None)


def test_many_tensors_alike_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read each but for the first; one whose archive begins elsewhere is read again."""
    state = {f"t{number}": torch.randn(8 + (number == 3) * 10**6, 4) for number in range(5)}
    dcp.save(state, checkpoint_id=tmp_path / "saved", no_dist=True)
    calls: list[int] = []
    straight = DirectReader._read_rows

    def rows(self: Any, *arguments: Any) -> bool:
        calls.append(1)
        return straight(self, *arguments)

    monkeypatch.setattr(DirectReader, "_read_rows", rows)
    loaded = {name: torch.zeros_like(value) for name, value in state.items()}
    dcp.load(loaded, storage_reader=DirectReader(tmp_path / "saved"), no_dist=True)
    assert all(torch.equal(value, loaded[name]) for name, value in state.items())
    assert 1 <= len(calls) <= 3


def test_into_another_dtype_is_left_to_torch(folder: Path) -> None:
    item = _item("matrix", (0, 0), (7, 5))
    found, left = _read(folder, item, DirectReader, torch.float64)
    assert torch.equal(found, _TENSORS["matrix"].double())
    assert left == 1


def test_a_file_that_ends_too_early(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (data,) = tmp_path.glob("*.distcp")
    data.write_bytes(data.read_bytes()[:1000])
    loaded = {name: torch.zeros_like(value) for name, value in _TENSORS.items()}
    with pytest.raises(CheckpointException):
        dcp.load(loaded, storage_reader=DirectReader(tmp_path), no_dist=True)
