"""Where the step is: the module at work, its block, and the line of code; in backward those of the forward operation that is undone."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from fullstep.lab.trace.worker.stream import OUTSIDE

_OWN = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_SHOWN_IN_TORCH = ("/optim/", "/distributed/", "/nn/parallel/")
"""parts of torch whose own lines say something; elsewhere the caller's line does"""
_LARGEST_SEQUENCE = 1 << 62
"""numbers above it belong to nodes that accumulate gradients"""


class Place:
    """A module of the model, by number: cheap to note."""

    __slots__ = ("block", "in_loss", "name")

    def __init__(self, name: str, block: int, in_loss: bool) -> None:
        self.name = name
        self.block = block
        self.in_loss = in_loss


class Places:
    """Follows a model through forward, recomputation and backward by hooks on all of its modules."""

    def __init__(self) -> None:
        self.nowhere = Place("", OUTSIDE, False)
        self.loss = Place("loss", OUTSIDE, True)
        self._last = self.nowhere
        self._of_module: dict[int, Place] = {}
        self._stack: list[Place] = [self.nowhere]
        self._sequence: list[int] = []
        self._place_at: list[Place] = []
        self._lines: dict[CodeType, bool] = {}
        self._line_sequence: list[int] = []
        self._line_at: list[tuple[str, int]] = []
        self._recomputing = 0
        self._handles: list[Any] = []
        self._restore: Callable[[], object] = lambda: None

    def learn(self, model: nn.Module, blocks: Iterable[nn.Module], head: nn.Module | None) -> None:
        """Gives every module of the model its place. ``blocks`` in their order; ``head``: makes the logits."""
        number = {id(block): index for index, block in enumerate(blocks)}
        within: dict[str, int] = {}
        for name, module in model.named_modules():
            if id(module) in number:
                within[name] = number[id(module)]
        for name, module in model.named_modules():
            parts = name.split(".")
            block = next((within[at] for n in range(len(parts), 0, -1) if (at := ".".join(parts[:n])) in within), OUTSIDE)
            self._of_module.setdefault(id(module), Place(name, block, module is head))

    def follow(self) -> None:
        """Starts to follow; :meth:`stop` ends it."""
        from torch.nn.modules import module as hooks  # noqa: PLC0415
        from torch.utils.checkpoint import _recomputation_hook  # noqa: PLC0415

        self._handles.append(hooks.register_module_forward_pre_hook(self._enter))
        self._handles.append(hooks.register_module_forward_hook(self._leave, always_call=True))
        places = self
        kind: Any = _recomputation_hook
        enter, leave = kind.__enter__, kind.__exit__

        def recompute(hook: Any) -> Any:
            places._recomputing += 1
            return enter(hook)

        def done(hook: Any, *error: Any) -> Any:
            places._recomputing -= 1
            return leave(hook, *error)

        kind.__enter__, kind.__exit__ = recompute, done

        def restore() -> None:
            kind.__enter__, kind.__exit__ = enter, leave

        self._restore = restore

    def stop(self) -> None:
        """Hooks are taken away."""
        for handle in self._handles:
            handle.remove()
        self._restore()

    def _enter(self, module: nn.Module, _: Any) -> None:
        place = self._of_module.get(id(module))
        if place is not None:
            self._stack.append(place)
            self._note()

    def _leave(self, module: nn.Module, _: Any, __: Any) -> None:
        place = self._of_module.get(id(module))
        if place is None or place not in self._stack:
            return
        while self._stack.pop() is not place:
            pass
        if place.in_loss:  # what the class still does to the logits, such as a cap
            self._stack.append(Place(self._stack[-1].name, OUTSIDE, True))
        self._note()

    def enter_loss(self) -> None:
        """From here on it is the loss; until :meth:`leave_loss`."""
        self._stack.append(self.loss)
        self._note()

    def leave_loss(self) -> None:
        while len(self._stack) > 1 and self._stack.pop() is not self.loss:
            pass
        self._note()

    def restart(self) -> None:
        """A new phase begins outside of all modules: one that raised on purpose, as recomputation that stops early does, never left."""
        self._stack = [self.nowhere]

    def _note(self) -> None:
        self._sequence.append(torch.autograd._get_sequence_nr())
        self._place_at.append(self._stack[-1])

    def here(self) -> tuple[Place, int]:
        """(place, sequence number of the node that is undone; -1 in a forward operation or its recomputation)."""
        node = torch._C._current_autograd_node()
        if node is None or self._recomputing or node.name().startswith("CheckpointFunctionB"):
            return self._stack[-1], -1
        sequence = node._sequence_nr()
        if not 0 <= sequence < _LARGEST_SEQUENCE:
            return self._last, -1
        at = bisect_right(self._sequence, sequence) - 1
        self._last = self._place_at[at] if at >= 0 else self.nowhere
        return self._last, sequence

    def line(self, sequence: int) -> tuple[str, int]:
        """(file, number) of the code that asked; for a node of backward (``sequence`` >= 0) of the forward operation."""
        if sequence >= 0:
            at = bisect_right(self._line_sequence, sequence) - 1
            return self._line_at[at] if at >= 0 else ("", 0)
        found = self._walk(sys._getframe(2))
        self._line_sequence.append(torch.autograd._get_sequence_nr() - 1)
        self._line_at.append(found)
        return found

    def _walk(self, frame: FrameType | None) -> tuple[str, int]:
        while frame is not None:
            code = frame.f_code
            shown = self._lines.get(code)
            if shown is None:
                shown = self._lines[code] = _says_something(code.co_filename)
            if shown:
                return code.co_filename, frame.f_lineno
            frame = frame.f_back
        return "", 0


def _says_something(filename: str) -> bool:
    if filename.startswith(_OWN) or not filename.startswith("/"):
        return False
    if filename.startswith(_TORCH):
        return any(part in filename for part in _SHOWN_IN_TORCH)
    return "/contextlib.py" not in filename
