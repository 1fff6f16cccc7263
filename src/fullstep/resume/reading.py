"""Reading a checkpoint straight into the tensors that wait for it, where torch's own reader copies each item three times.

An item of ``torch.distributed.checkpoint`` is an archive of ``torch.save``; the bytes of its tensor lie in it as they lie in memory. Rows
that follow one another, of a contiguous tensor of the same dtype, are read from the file into their place; all else is left to torch.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

_DATA = "data/0"
"""the only tensor of an item"""
_ORDER = sys.byteorder.encode()
_END_BYTES = 4096
_DTYPES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
    "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip
"""by the names that torch.save writes; others are left to torch"""


class DirectReader(FileSystemReader):
    """Torch's reader of a local folder, with a short way for what is stored as it is needed."""

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)
        self._tensors = metadata.state_dict_metadata
        self._starts: dict[tuple[torch.dtype, int], int] = {}
        """where the tensor begins in an item of this dtype and number of dimensions, as the last one had it"""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        left: list[ReadItem] = []
        for name, items in by_file.items():
            items.sort(key=lambda item: self.storage_data[item.storage_index].offset)
            with Path(self.path, name).open("rb", buffering=0) as file:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                left += [item for item in items if not self._read_straight(file.fileno(), item, planner)]
        return super().read_data(replace(plan, items=left), planner)

    def _read_straight(self, file: int, item: ReadItem, planner: LoadPlanner) -> bool:
        info: _StorageInfo = self.storage_data[item.storage_index]
        if item.type != LoadItemType.TENSOR or info.transform_descriptors:
            return False
        sizes = self._chunk_sizes(item.storage_index)
        rows = None if sizes is None else rows_of(sizes, item.storage_offsets, item.lengths)
        if sizes is None or rows is None:
            return False
        target = planner.resolve_tensor(item).detach()
        if not target.is_contiguous() or target.numel() != rows[1]:
            return False
        here = target if target.is_cpu else torch.empty(target.shape, dtype=target.dtype, pin_memory=torch.cuda.is_available())
        form = _Form(target.dtype, tuple(sizes))
        if not (self._read_at_once(file, info, form, here) or self._read_rows(file, info, form, rows[0], here)):
            return False
        if here is not target:
            target.copy_(here)
        planner.commit_tensor(item, target)
        return True

    def _read_at_once(self, file: int, info: _StorageInfo, form: _Form, here: Tensor) -> bool:
        """The whole item in one read, its tensor into place: where that begins is taken from the last one like it, and checked then."""
        start = self._starts.get((form.dtype, len(form.sizes)))
        if start is None or here.numel() != prod(form.sizes):
            return False
        end = info.length - start - here.numel() * here.element_size()
        if not 0 <= end <= _END_BYTES:
            return False
        head, tail = bytearray(start), bytearray(end)
        _fill(file, info.offset, [memoryview(head), _bytes_of(here), memoryview(tail)])
        return form.start_in(_Ends(bytes(head), bytes(tail), info.length)) == start

    def _read_rows(self, file: int, info: _StorageInfo, form: _Form, first: int, here: Tensor) -> bool:
        """The ends of the item, which say where its tensor is, and then what is needed of that."""
        count = min(_END_BYTES, info.length)
        ends = _Ends(os.pread(file, count, info.offset), os.pread(file, count, info.offset + info.length - count), info.length)
        start = form.start_in(ends)
        if start is None:
            return False
        self._starts[form.dtype, len(form.sizes)] = start
        _fill(file, info.offset + start + first * here.element_size(), [_bytes_of(here)])
        return True

    def _chunk_sizes(self, index: MetadataIndex) -> Sequence[int] | None:
        tensor = self._tensors.get(index.fqn)
        if not isinstance(tensor, TensorStorageMetadata):
            return None
        return next((chunk.sizes for chunk in tensor.chunks if chunk.offsets == index.offset), None)


def rows_of(sizes: Sequence[int], offsets: Sequence[int], lengths: Sequence[int]) -> tuple[int, int] | None:
    """(first element, number of elements) of a part of a contiguous tensor whose elements follow one another; None: they do not.

    Args:
        sizes: of the tensor
        offsets: where the part begins
        lengths: of the part

    Example:
        >>> rows_of((4, 3), (1, 0), (2, 3)), rows_of((4, 3), (1, 0), (2, 2)), rows_of((), (), ()), rows_of((2, 4, 3), (1, 1, 0), (1, 2, 3))
        ((3, 6), None, (0, 1), (15, 6))
    """
    split = next((at for at, (length, size) in enumerate(zip(lengths, sizes, strict=True)) if length != 1 or size == 1), len(sizes))
    if any(length != size for length, size in zip(lengths[split + 1 :], sizes[split + 1 :], strict=True)):
        return None
    first = sum(offset * prod(sizes[at + 1 :]) for at, offset in enumerate(offsets))
    return first, prod(lengths)


class _Form(NamedTuple):
    """How an item's tensor has to lie in its archive to be read as it is: contiguous, in this order of bytes."""

    dtype: torch.dtype
    sizes: tuple[int, ...]

    def start_in(self, ends: _Ends) -> int | None:
        """Where its bytes begin in the archive; None: it is stored otherwise."""
        try:
            archive = torch._C.PyTorchFileReader(ends)
            stored, order = _stored_tensor(archive.get_record("data.pkl")), archive.get_record("byteorder")
            start, size = int(archive.get_record_offset(_DATA)), archive.get_record_size(_DATA)
        except RuntimeError:  # it is no archive, or one of another kind
            return None
        strides = tuple(prod(self.sizes[at + 1 :]) for at in range(len(self.sizes)))
        as_here = order == _ORDER and stored == (self.dtype, 0, self.sizes, strides) and size == prod(self.sizes) * self.dtype.itemsize
        return start if as_here else None


class _Ends(io.RawIOBase):
    """An item without its middle: its directory and all small records lie at its ends."""

    def __init__(self, head: bytes, tail: bytes, length: int) -> None:
        super().__init__()
        self._head, self._tail, self._length, self._at = head, tail, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0, self._at, self._length)[whence]
        return self._at

    def readinto(self, room: Any, /) -> int:
        """Zeros for what is not there: the archive's reader looks for its directory in more bytes than that has."""
        view = memoryview(room).cast("B")
        count = max(0, min(len(view), self._length - self._at))
        tail_at = self._length - len(self._tail)
        head = self._head[self._at : self._at + count]
        tail = self._tail[max(0, self._at + len(head) - tail_at) : max(0, self._at + count - tail_at)]  # the ends overlap in a short item
        view[:count] = head + bytes(count - len(head) - len(tail)) + tail
        self._at += count
        return count


class _Reader(pickle.Unpickler):
    """Reads of a tensor's pickle what it says of the tensor, and makes none; another thing than a tensor is an error."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda dtype, offset, sizes, strides, *_: (dtype, offset, tuple(sizes), tuple(strides))
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(name)

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, key, *_ = pid
        if kind != "storage" or key != "0":
            raise pickle.UnpicklingError(kind)
        return dtype


def _stored_tensor(data: bytes) -> tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]] | None:
    """(dtype, offset, sizes, strides) of an archive's tensor; None: it holds something else."""
    try:
        found: tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]] = _Reader(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, AttributeError, TypeError, ValueError):
        return None
    return found


def _bytes_of(tensor: Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


def _fill(file: int, start: int, rooms: list[memoryview]) -> None:
    """Reads bytes that follow one another into the rooms, one after the other.

    Raises:
        EOFError: the file ends before
    """
    left = [room for room in rooms if len(room)]
    while left:
        count = os.preadv(file, left, start)
        if not count:
            raise EOFError(f"the file ends after {start} bytes, and more were written")
        start += count
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = left[0][count:]
