"""Storages that are alive, from allocation to release, written into the event stream as CUDA's allocator would see them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Stream, TensorRecord


class Storages:
    """Knows every storage of one fake mode by its address, and hears of its end by a weak reference.

    Args:
        mode: tensors of other fake modes (sharding propagation) are not of the step
        stream: gets the events
        block_of_release: the block at work when a storage with this record is let go
    """

    def __init__(self, mode: FakeTensorMode, stream: Stream, block_of_release: Callable[[TensorRecord], int]) -> None:
        self.stream = stream
        self.mode = mode
        self.segment = 0
        """stretch of the step that events belong to"""
        self.host: set[int] = set()
        """storages that stay in host memory"""
        self._block_of_release = block_of_release
        self._live: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self._streams: dict[int, int] = {id(torch.cpu.current_stream()): 0}

    def counts(self, tensor: Tensor) -> bool:
        """Whether it is of the step."""
        return isinstance(tensor, FakeTensor) and tensor.fake_mode is self.mode and tensor.fake_device.type == "cpu"

    def record_of(self, tensor: Tensor) -> TensorRecord | None:
        """Of the tensor's storage; None where it is not known."""
        which = self._live.get(tensor.untyped_storage()._cdata)
        return None if which is None else self.stream.tensors[which]

    def is_new(self, tensor: Tensor) -> bool:
        """Whether it is of the step and its storage is not known yet."""
        if not self.counts(tensor):
            return False
        try:
            return tensor.untyped_storage()._cdata not in self._live
        except NotImplementedError:  # sparse
            return False

    def enter(self, tensor: Tensor, operation: str, module: str, line: tuple[str, int], block: int) -> TensorRecord:
        """The record of the tensor's storage, which is entered where it is not yet."""
        storage = tensor.untyped_storage()
        which = self._live.get(storage._cdata)
        if which is not None:
            return self.stream.tensors[which]
        size_bytes = storage.nbytes()
        record = TensorRecord(size_bytes, tuple(tensor.shape), str(tensor.dtype), operation, module, line, self.segment, block)
        if storage._cdata in self.host:
            record.holding = "host"
        self._allocate(storage, record)
        return record

    def keep_on_host(self, tensor: Tensor) -> None:
        """Its storage takes no memory of the GPU."""
        key = tensor.untyped_storage()._cdata
        if key not in self.host:
            record = self.record_of(tensor)
            if record is not None:
                record.holding = "host"
            self.host.add(key)

    def resized(self, storage: Any, size_bytes: int, block: int) -> None:
        """A storage was emptied or filled again, as FSDP does with gathered parameters: a release or an allocation of its own."""
        which = self._live.get(storage._cdata)
        if which is None:
            return
        old = self.stream.tensors[which]
        if old.size_bytes == size_bytes:
            return
        if old.size_bytes:
            self._release(which)
        holding = old.holding or "gathered_parameters"
        self._allocate(
            storage, TensorRecord(size_bytes, old.shape, old.dtype, old.operation, old.module, old.line, self.segment, block, holding)
        )

    def forget(self) -> None:
        """Releases are not heard of any more."""
        self._live.clear()
        self._references.clear()

    def pass_through(self, size_bytes: int, operation: str, module: str, block: int) -> None:
        """A kernel's own buffer: there while it runs."""
        buffer = TensorRecord(size_bytes, (size_bytes,), "torch.uint8", operation, module, ("", 0), self.segment, block, "temporaries")
        which = self._buffer(buffer)
        self.stream.append(which, RELEASE, 0, block, self.segment)

    def stay(self, size_bytes: int, operation: str) -> None:
        """One buffer for good, as cuBLAS has for each of its handles."""
        if size_bytes:
            self._buffer(TensorRecord(size_bytes, (size_bytes,), "torch.uint8", operation, "", ("", 0), self.segment, OUTSIDE, "buffers"))

    def take_over(self, out: Tensor, first: Tensor, old: int) -> bool:
        """The storage at ``old``, of ``first``, becomes that of ``out``, where they are alike: no allocation."""
        if not self.counts(out) or out.dtype != first.dtype or out.shape != first.shape:
            return False
        storage = out.untyped_storage()
        which = self._live.get(old)
        if which is None or storage._cdata in self._live or storage.nbytes() != self.stream.tensors[which].size_bytes:
            return False
        del self._live[old]
        self._references.pop(old, None)
        self._live[storage._cdata] = which
        self._watch(storage)
        return True

    def holds(self, key: int) -> bool:
        """Whether the storage at this address is known."""
        return key in self._live

    def _buffer(self, record: TensorRecord) -> int:
        which = len(self.stream.tensors)
        self.stream.tensors.append(record)
        self.stream.append(which, record.size_bytes, self._stream_now(), record.block, self.segment)
        return which

    def _allocate(self, storage: Any, record: TensorRecord) -> None:
        which = len(self.stream.tensors)
        self.stream.tensors.append(record)
        self._live[storage._cdata] = which
        self._watch(storage)
        if record.size_bytes:
            self.stream.append(which, record.size_bytes, self._stream_now(), record.block, self.segment)

    def _watch(self, storage: Any) -> None:
        key = storage._cdata

        def released(_: object) -> None:
            self.host.discard(key)
            which = self._live.pop(key, None)
            self._references.pop(key, None)
            if which is not None and self.stream.tensors[which].size_bytes:
                self._release(which)

        self._references[key] = weakref.ref(storage, released)

    def _release(self, which: int) -> None:
        self.stream.append(which, RELEASE, 0, self._block_of_release(self.stream.tensors[which]), self.segment)

    def _stream_now(self) -> int:
        return self._streams.setdefault(id(torch.cpu.current_stream()), len(self._streams))


def parts(tensor: Tensor) -> list[Tensor]:
    """The plain tensors inside a wrapper: the local shard of a DTensor, the packed data of a quantized one."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor.data if isinstance(tensor, torch.nn.Parameter) else tensor]
    if hasattr(tensor, "_local_tensor"):
        return parts(tensor._local_tensor)
    names = tensor.__tensor_flatten__()[0]
    return [part for name in names for part in parts(getattr(tensor, name))]
