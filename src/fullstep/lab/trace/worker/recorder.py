"""Records every allocation and release of fake tensors, as CUDA's allocator would see them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils.flop_counter import flop_registry

from fullstep.lab.trace.worker.compat import distributed
from fullstep.lab.trace.worker.places import Places
from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Segment, Stream, TensorRecord
from fullstep.lab.trace.worker.workspaces import Workspaces

_DEVICE_OF = torch.ops.prim.device.default
_aten = torch.ops.aten
_IN_PLACE_ON_A_GPU = frozenset(
    (_aten.add.Tensor, _aten.scatter.src, _aten.scatter.value, _aten.index_put.default, _aten.index_add.default, _aten.scatter_add.default)
)
"""autograd takes the out-of-place form for anything that looks like a tensor subclass; on real tensors nobody else holds, it writes in place"""
_HELD_BY_CALL_ALONE = 2
"""references to a storage whose tensor only the running call holds: the tensor's own and the one through which we look"""
_ENGINE = ("_compile.py", "eval_frame.py", "_stats.py", "contextlib.py")


class Recorder(TorchDispatchMode):
    """Stands inside the fake mode, around two optimizer steps.

    Args:
        mode: the fake mode; tensors of other fake modes (sharding propagation) are not of the step
        places: follows the model
        workspaces: what kernels allocate inside
    """

    def __init__(self, mode: FakeTensorMode, places: Places, workspaces: Workspaces) -> None:
        super().__init__()
        self.stream = Stream()
        self.places = places
        self._mode = mode
        self._workspaces = workspaces
        self._live: dict[int, int] = {}
        self._references: dict[int, Any] = {}
        self._streams: dict[int, int] = {id(torch.cpu.current_stream()): 0}
        self._segment = 0
        self._spreads = True
        """what is made belongs to the block of its inputs: outside forward and backward"""
        self._threads: set[str] = set()
        """forward runs in the main thread, backward in that of autograd: each has a handle of cuBLAS"""
        self.operations = 0
        self.host: set[int] = set()
        """storages that stay in host memory"""
        self.mark(Segment(0, 0, "setup"))

    # what the steps say

    def mark(self, segment: Segment) -> None:
        """A new stretch of the step begins."""
        self._segment = len(self.stream.segments)
        self._spreads = segment.phase in ("setup", "optimizer_step", "gradients_cleared")
        self.stream.segments.append(segment)
        self.places.restart()
        if segment.phase in ("forward", "backward") and segment.phase not in self._threads:
            self._threads.add(segment.phase)
            self._workspace_for_good(self._workspaces.matrix_product_bytes)

    def hold(
        self, tensors: Iterable[Tensor | None], holding: str, block_of: Callable[[int], int] | None = None,
        names: Callable[[int], str] = lambda _: "",
    ) -> None:  # fmt: skip
        """Says what tensors are for. Those that were made before the recording began are entered now.

        Args:
            tensors: None is passed over
            holding: one of the ledger's
            block_of: from the position of a tensor to the block that it belongs to
            names: from its position to the module that it belongs to
        """
        for number, tensor in enumerate(tensors):
            if tensor is None:
                continue
            for part in _parts(tensor):
                if self._counts(part):
                    block = OUTSIDE if block_of is None else block_of(number)
                    which = self._enter(part, "made before", names(number), ("", 0), block)
                    record = self.stream.tensors[which]
                    record.holding = holding if record.holding != "host" else "host"
                    record.module = record.module or names(number)
                    record.block = block if record.block == OUTSIDE else record.block

    def keep_on_host(self, tensors: Iterable[Tensor]) -> None:
        """These do not take memory of the GPU: they are taken out of the stream."""
        for tensor in tensors:
            for part in _parts(tensor):
                key = part.untyped_storage()._cdata
                if key in self.host:
                    continue
                which = self._live.get(key)
                if which is not None:
                    self.stream.tensors[which].holding = "host"
                self.host.add(key)

    def holding_of(self, tensor: Tensor) -> str:
        which = self._live.get(tensor.untyped_storage()._cdata)
        return "" if which is None else self.stream.tensors[which].holding

    # the mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE_OF:
            return func(*args)
        kwargs = kwargs or {}
        for kind in types:
            if kind.__name__ in ("DTensor", "AsyncCollectiveTensor"):
                return NotImplemented
        old = self._overwritten(func, args) if func in _IN_PLACE_ON_A_GPU else None
        out = func(*args, **kwargs)
        if distributed.paused:
            return out
        self.operations += 1
        place, _, sequence = self.places.here()
        stream = self.stream
        block = place.block
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            where = (self._segment, self._block_of_inputs(args) if self._spreads and block == OUTSIDE else block)
            stream.flops[where] = stream.flops.get(where, 0) + formula(*(each for each in args if not isinstance(each, torch.dtype)), **kwargs, out_val=out)
        if isinstance(out, Tensor):
            if old is not None and self._takes_over(out, args[0], old):
                return out
            self._new(out, func, args, place, block, sequence)
        elif isinstance(out, (tuple, list)):
            self._new_of_list(out, func, args, place, block, sequence)
        inside = self._workspaces.inside(func, args, out)
        for size_bytes in inside:
            self._pass_through(size_bytes, func, place.name, block)
        return out

    def _new_of_list(self, out: Any, func: Any, args: Any, place: Any, block: int, sequence: int) -> None:
        belongs = args[0] if args and isinstance(args[0], (tuple, list)) and len(args[0]) == len(out) else None
        for number, each in enumerate(out):
            if isinstance(each, Tensor):
                self._new(each, func, (belongs[number],) if belongs is not None else args, place, block, sequence)
            elif isinstance(each, (tuple, list)):
                self._new_of_list(each, func, (), place, block, sequence)

    def _new(self, out: Tensor, func: Any, args: Any, place: Any, block: int, sequence: int) -> None:
        if not self._counts(out):
            return
        try:
            key = out.untyped_storage()._cdata
        except NotImplementedError:
            return
        if key in self._live:
            return
        if self._spreads and block == OUTSIDE:
            block = self._block_of_inputs(args)
        which = self._enter(out, str(func), place.name, self.places.line(sequence), block)
        record = self.stream.tensors[which]
        if place.in_loss or place is self.places.loss:
            record.holding = "logits_and_loss"
        elif func is _aten._to_copy.default and self.holding_of(args[0]) == "weights":
            record.holding = "temporaries"

    def _block_of_inputs(self, args: Any) -> int:
        for each in args:
            if isinstance(each, FakeTensor):
                which = self._live.get(each.untyped_storage()._cdata)
                if which is not None and self.stream.tensors[which].block != OUTSIDE:
                    return self.stream.tensors[which].block
            elif isinstance(each, (tuple, list)):
                found = self._block_of_inputs(each)
                if found != OUTSIDE:
                    return found
        return OUTSIDE

    # storages

    def _counts(self, tensor: Tensor) -> bool:
        return isinstance(tensor, FakeTensor) and tensor.fake_mode is self._mode and tensor.fake_device.type == "cpu"

    def _enter(self, tensor: Tensor, operation: str, module: str, line: tuple[str, int], block: int) -> int:
        """The number of the tensor's storage, which is entered where it is not yet."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        which = self._live.get(key)
        if which is not None:
            return which
        size_bytes = storage.nbytes()
        record = TensorRecord(size_bytes, tuple(tensor.shape), str(tensor.dtype), operation, module, line, self._segment, block)
        if key in self.host:
            record.holding = "host"
        return self._allocate(key, storage, record, size_bytes)

    def _allocate(self, key: int, storage: Any, record: TensorRecord, size_bytes: int) -> int:
        which = len(self.stream.tensors)
        self.stream.tensors.append(record)
        self._live[key] = which
        self._watch(key, storage)
        if size_bytes:
            self.stream.append(which, size_bytes, self._stream_now(), record.block, self._segment)
        return which

    def _watch(self, key: int, storage: Any) -> None:
        self._references[key] = weakref.ref(storage, lambda _, key=key: self._released(key))

    def _released(self, key: int) -> None:
        self.host.discard(key)
        which = self._live.pop(key, None)
        self._references.pop(key, None)
        if which is not None and self.stream.tensors[which].size_bytes:
            self._release(which)

    def _release(self, which: int) -> None:
        block = self.stream.tensors[which].block if self._spreads else self.places.here()[0].block
        self.stream.append(which, RELEASE, 0, block, self._segment)

    def _stream_now(self) -> int:
        return self._streams.setdefault(id(torch.cpu.current_stream()), len(self._streams))

    def resized(self, storage: Any, size_bytes: int) -> None:
        """A storage was emptied or filled again, as FSDP does with gathered parameters: a release or an allocation of its own."""
        which = self._live.get(storage._cdata)
        if which is None:
            return
        record = self.stream.tensors[which]
        if record.size_bytes == size_bytes:
            return
        if record.size_bytes:
            self._release(which)
        fresh = TensorRecord(
            size_bytes, record.shape, record.dtype, record.operation, record.module, record.line, self._segment,
            self.places.here()[0].block, record.holding or "gathered_parameters",
        )  # fmt: skip
        self._allocate(storage._cdata, storage, fresh, size_bytes)

    def _pass_through(self, size_bytes: int, func: Any, module: str, block: int) -> None:
        """A kernel's own buffer: there while it runs."""
        which = len(self.stream.tensors)
        record = TensorRecord(size_bytes, (size_bytes,), "torch.uint8", f"inside {func}", module, ("", 0), self._segment, block, "temporaries")
        self.stream.tensors.append(record)
        self.stream.append(which, size_bytes, self._stream_now(), block, self._segment)
        self.stream.append(which, RELEASE, 0, block, self._segment)

    def _workspace_for_good(self, size_bytes: int) -> None:
        """One buffer that stays, as cuBLAS has for each of its handles."""
        if not size_bytes:
            return
        which = len(self.stream.tensors)
        record = TensorRecord(size_bytes, (size_bytes,), "torch.uint8", "cuBLAS workspace", "", ("", 0), self._segment, OUTSIDE, "buffers")
        self.stream.tensors.append(record)
        self.stream.append(which, size_bytes, 0, OUTSIDE, self._segment)

    # writing in place

    def _overwritten(self, func: Any, args: Any) -> int | None:
        """The first argument's storage, where a GPU would write into it: autograd itself calls, and nobody else holds it."""
        first = args[0]
        if not isinstance(first, FakeTensor):
            return None
        key = first.untyped_storage()._cdata
        if key not in self._live or torch._C._storage_Use_Count(key) != _HELD_BY_CALL_ALONE or not _called_by_engine():
            return None
        return key

    def _takes_over(self, out: Tensor, first: Tensor, old: int) -> bool:
        """The result takes the place of its first argument: no allocation."""
        if not self._counts(out) or out.dtype != first.dtype or out.shape != first.shape:
            return False
        storage = out.untyped_storage()
        which = self._live.get(old)
        if which is None or storage._cdata in self._live or storage.nbytes() != self.stream.tensors[which].size_bytes:
            return False
        del self._live[old]
        self._references.pop(old, None)
        self._live[storage._cdata] = which
        self._watch(storage._cdata, storage)
        return True


@contextmanager
def watching_resizes(recorder: Recorder) -> Iterator[None]:
    """Storages that are resized are seen while it lasts."""
    before = torch.UntypedStorage.resize_

    def resize(storage: Any, size_bytes: int) -> Any:
        result = before(storage, size_bytes)
        recorder.resized(storage, storage.nbytes())
        return result

    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = before  # type: ignore[method-assign]


def _called_by_engine() -> bool:
    """No Python code between the running operation and the engine of autograd."""
    frame = sys._getframe(3)
    while frame is not None and frame.f_code.co_filename.endswith(_ENGINE):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is None or frame.f_code.co_name == "_engine_run_backward"


def _parts(tensor: Tensor) -> list[Tensor]:
    """The plain tensors inside a wrapper: the local shard of a DTensor, the packed data of a quantized one."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor.data if isinstance(tensor, torch.nn.Parameter) else tensor]
    if hasattr(tensor, "_local_tensor"):
        return _parts(tensor._local_tensor)
    names = tensor.__tensor_flatten__()[0]
    return [part for name in names for part in _parts(getattr(tensor, name))]
