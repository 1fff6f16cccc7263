"""Records every allocation and release of fake tensors, as CUDA's allocator would see them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fullstep.lab.trace.worker.compat import distributed
from fullstep.lab.trace.worker.places import Place, Places
from fullstep.lab.trace.worker.storages import Storages, parts
from fullstep.lab.trace.worker.stream import OUTSIDE, Segment, Stream, TensorRecord
from fullstep.lab.trace.worker.workspaces import Workspaces

_DEVICE_OF = torch.ops.prim.device.default
_aten = torch.ops.aten
_JOIN = frozenset((_aten.cat.default, _aten.stack.default))
_IN_PLACE_ON_A_GPU = frozenset(
    (_aten.add.Tensor, _aten.scatter.src, _aten.scatter.value, _aten.index_put.default, _aten.index_add.default, _aten.scatter_add.default)
)
"""autograd takes the out-of-place form for anything that looks like a tensor subclass; on real tensors that nobody else holds, it writes
in place"""
_HELD_BY_CALL_ALONE = 2
"""references to a storage whose tensor only the running call holds: the tensor's own and the one through which we look"""
_TENSOR_HELD_BY_CALL_ALONE = 4
"""the same of the tensor: the engine's, the call's and those of our Python; one more where it is a gradient that somebody keeps"""
_ENGINE = ("_compile.py", "eval_frame.py", "_stats.py", "contextlib.py")
_BY_TENSOR = ("setup", "optimizer_step", "gradients_cleared")
"""phases outside forward and backward: what is made belongs to the block of its inputs"""


class Recorder(TorchDispatchMode):
    """Stands inside the fake mode, around two optimizer steps.

    Args:
        mode: the fake mode
        places: follows the model
        workspaces: what kernels allocate inside
    """

    def __init__(self, mode: FakeTensorMode, places: Places, workspaces: Workspaces) -> None:
        super().__init__()
        self.mode = mode
        self.places = places
        self.stream = Stream()
        self.operations = 0
        self._workspaces = workspaces
        self._storages = Storages(mode, self.stream, self._block_of_release)
        self._by_tensor = True
        self._threads: set[str] = set()
        """forward runs in the main thread, backward in that of autograd: each has a handle of cuBLAS"""
        self.mark(Segment(0, 0, "setup"))

    @property
    def host(self) -> set[int]:
        """Storages that stay in host memory, by their address."""
        return self._storages.host

    # what the steps say

    def mark(self, segment: Segment) -> None:
        """A new stretch of the step begins."""
        self._storages.segment = len(self.stream.segments)
        self._by_tensor = segment.phase in _BY_TENSOR
        self.stream.segments.append(segment)
        self.places.restart()
        if segment.phase in ("forward", "backward") and segment.phase not in self._threads:
            self._threads.add(segment.phase)
            self._storages.stay(self._workspaces.matrix_product_bytes, "cuBLAS workspace")

    def stop(self) -> None:
        """The last step is over. The model may go whenever Python collects it: that is no event of a step."""
        self._storages.forget()

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
            for part in parts(tensor) if tensor is not None else ():
                if self._storages.counts(part):
                    block = OUTSIDE if block_of is None else block_of(number)
                    record = self._storages.enter(part, "made before", names(number), ("", 0), block)
                    record.holding = holding if record.holding != "host" else "host"
                    record.module = record.module or names(number)
                    record.block = block if record.block == OUTSIDE else record.block

    def keep_on_host(self, tensors: Iterable[Tensor]) -> None:
        """These do not take memory of the GPU: they are taken out of the stream."""
        for tensor in tensors:
            for part in parts(tensor):
                self._storages.keep_on_host(part)

    def holding_of(self, tensor: Tensor) -> str:
        """What the tensor is for; empty where nobody has said."""
        record = self._storages.record_of(tensor)
        return "" if record is None else record.holding

    def resized(self, storage: Any, size_bytes: int) -> None:
        """A storage was emptied or filled again."""
        self._storages.resized(storage, size_bytes, self.places.here()[0].block)

    # the mode

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE_OF:
            return func(*args)
        kwargs = kwargs or {}
        for kind in types:
            if kind.__name__ in ("DTensor", "AsyncCollectiveTensor"):
                return NotImplemented
        old = self._overwritten(func, args[0]) if func in _IN_PLACE_ON_A_GPU else None
        out = func(*args, **kwargs)
        if distributed.paused:
            return out
        self.operations += 1
        place, sequence = self.places.here()
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self._count_flops(formula, args, kwargs, out, place.block)
        if isinstance(out, Tensor):
            if old is not None and self._storages.take_over(out, args[0], old):
                return out
            self._new(out, func, args, place, sequence)
        elif isinstance(out, (tuple, list)):
            self._new_of_list(out, func, args, place, sequence)
        for size_bytes in self._workspaces.inside(func, args, out):
            self._storages.pass_through(size_bytes, f"inside {func}", place.name, place.block)
        return out

    def _count_flops(self, formula: Any, args: Any, kwargs: Any, out: Any, block: int) -> None:
        if self._by_tensor and block == OUTSIDE:
            block = self._block_of_inputs(args)
        shapes = (each for each in args if not isinstance(each, torch.dtype))
        where = (self._storages.segment, block)
        self.stream.flops[where] = self.stream.flops.get(where, 0) + formula(*shapes, **kwargs, out_val=out)

    def _new_of_list(self, out: Any, func: Any, args: Any, place: Place, sequence: int) -> None:
        belongs = args[0] if args and isinstance(args[0], (tuple, list)) and len(args[0]) == len(out) else None
        for number, each in enumerate(out):
            if isinstance(each, Tensor):
                self._new(each, func, (belongs[number],) if belongs is not None else args, place, sequence)
            elif isinstance(each, (tuple, list)):
                self._new_of_list(each, func, (), place, sequence)

    def _new(self, out: Tensor, func: Any, args: Any, place: Place, sequence: int) -> None:
        if not self._storages.is_new(out):
            return
        block = place.block
        if self._by_tensor and block == OUTSIDE:
            block = self._block_of_inputs(args)
        record = self._storages.enter(out, str(func), place.name, self.places.line(sequence), block)
        if func in _JOIN and len({self._block_of_inputs((each,)) for each in args[0]} - {OUTSIDE}) > 2:
            self.stream.joins = f"{func} in {place.name or 'the step'}"
        if func is _aten._to_copy.default and self.holding_of(args[0]) == "weights":
            record.holding = "temporaries"
        elif place.in_loss or place is self.places.loss:
            record.holding = "logits_and_loss"

    def _block_of_inputs(self, args: Any) -> int:
        for each in args:
            found = OUTSIDE
            if isinstance(each, FakeTensor):
                record = self._storages.record_of(each)
                found = OUTSIDE if record is None else record.block
            elif isinstance(each, (tuple, list)):
                found = self._block_of_inputs(each)
            if found != OUTSIDE:
                return found
        return OUTSIDE

    def _block_of_release(self, record: TensorRecord) -> int:
        return record.block if self._by_tensor else self.places.here()[0].block

    def _overwritten(self, func: Any, first: Any) -> int | None:
        """The first argument's storage, where a GPU would write into it: autograd itself calls, and nobody else holds it."""
        if not isinstance(first, FakeTensor):
            return None
        key: int = first.untyped_storage()._cdata
        alone = torch._C._storage_Use_Count(key) == _HELD_BY_CALL_ALONE
        if func is _aten.add.Tensor:  # a gradient; the others write into a buffer of their own
            alone = alone and first._use_count() == _TENSOR_HELD_BY_CALL_ALONE
        return key if alone and self._storages.holds(key) and _called_by_engine() else None


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
