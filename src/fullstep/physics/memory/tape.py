"""A small autograd tape that holds sizes instead of numbers.

The forward pass of a block is written down operation by operation, with what each one keeps for backward. The tape then
plays forward and backward and tells what is alive at the worst moment of each. Nothing is summed by hand, so a change of
kernel, dtype or adapter is a change of the operations and of nothing else.

Rules of lifetime (PyTorch's autograd, eager mode):

* a tensor lives while a later operation of the forward pass reads it, or while an operation keeps it for backward;
* in backward, operations run in reverse; each allocates the gradients of its inputs, then lets go of the gradient of its
  output and of what it kept;
* a tensor that several operations read gets the sum of their gradients: the second contribution is added to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fullstep.physics.memory.gradient_buffers import GradientBuffers


class Op(NamedTuple):
    """One operation. Sizes in bytes."""

    inputs: Sequence[int]
    """tensors whose gradients backward makes (those that need one)"""
    reads: Sequence[int]
    """all tensors that forward reads"""
    output: int
    saved: tuple[int, ...]
    """tensors kept for backward"""
    forward_work: float
    """temporaries while it runs forward"""
    unsaved_work: float
    """the same while nothing is kept: differs where the operation is a tape of its own"""
    backward_work: float
    weight_gradient: float
    """gradient of its weights: appears in backward and stays"""
    view: bool
    """its gradients are views of its output's gradient, or that gradient itself"""


class Profile(NamedTuple):
    """What playing a tape gives, in bytes. The input counts where it is kept for backward, not in the forward peaks."""

    saved: float
    """kept for backward when forward has ended (the input too, where an operation keeps it), without the output"""
    output: float
    forward_peak: float
    """most alive at once while forward runs and keeps what backward needs"""
    forward_peak_unsaved: float
    """the same when nothing is kept (under activation checkpointing)"""
    backward_peak: float
    """most alive at once in backward: what is still kept, gradients (that of the output included), temporaries"""
    weight_gradient: float
    """gradients of weights that backward leaves behind"""
    kept_at_peak: float
    """of ``backward_peak``: what is still kept"""
    weight_gradient_at_peak: float
    """of ``backward_peak``: gradients of weights made so far"""
    kept_input: float
    """of ``saved``: the input itself, where an operation keeps it"""


class Tape:
    """Write operations with :meth:`op`, then :meth:`play`. Tensor 0 is the input.

    A frozen product of 8 bytes, then relu, which keeps its output of 4; a sum of 1 ends it. In relu's backward its output and two
    gradients of 4 are alive.

    >>> tape = Tape(8)
    >>> positive = tape.op((tape.op((0,), 4),), 4, saves_output=True)
    >>> _ = tape.op((positive,), 1)
    >>> profile = tape.play()
    >>> profile.saved, profile.forward_peak, profile.backward_peak
    (4, 8.0, 12.0)
    """

    __slots__ = ("_gradient", "_made_again", "_ops", "_origin", "_recomputes", "_sizes")

    def __init__(self, input_bytes: float, *, input_needs_gradient: bool = True, recomputes: bool = False) -> None:
        """``recomputes``: a ``cheap`` operation makes its ``cheap`` inputs again in backward instead of keeping them (torch.compile)."""
        self._sizes: list[float] = [input_bytes]
        self._gradient: list[bool] = [input_needs_gradient]
        self._ops: list[Op] = []
        self._recomputes = recomputes
        self._origin: dict[int, tuple[int, ...]] = {}
        self._made_again: dict[int, int] = {}

    def size(self, tensor: int) -> float:
        return self._sizes[tensor]

    def tensor(self, size_bytes: float) -> int:
        """A tensor that an operation makes beside its output and keeps (statistics, masks)."""
        self._sizes.append(size_bytes)
        self._gradient.append(False)
        return len(self._sizes) - 1

    def op(
        self,
        reads: Sequence[int],
        output_bytes: float,
        *,
        saves: Sequence[int] = (),
        saves_output: bool = False,
        extra_saved: float = 0,
        forward_work: float = 0,
        unsaved_work: float | None = None,
        backward_work: float = 0,
        weight_gradient: float = 0,
        trains: bool = False,
        view: bool = False,
        cheap: bool = False,
        made_again: bool = False,
        holds: Sequence[int] = (),
    ) -> int:
        """Append one operation and return its output. It needs a gradient if an input does or if its weights train.

        What it keeps is dropped when no gradient flows through it. ``trains``: it has weights that train. ``cheap``: an
        elementwise result, see ``recomputes``. ``made_again``: whoever needs its output in backward keeps its input and makes it again.
        ``holds``: tensors that the caller's local variables keep alive until this operation has run forward.
        """
        gradient = self._gradient
        inputs = [tensor for tensor in reads if gradient[tensor]]
        flows = trains or bool(inputs)
        self._sizes.append(output_bytes)
        gradient.append(flows)
        output = len(self._sizes) - 1
        kept: tuple[int, ...] = ()
        if not flows:
            backward_work = 0
        else:
            kept = tuple(saves)
            if saves_output:
                kept += (output,)
            if cheap and self._recomputes:
                kept, again = self._origins(kept)
                backward_work += again
            if self._made_again:
                backward_work += sum(self._sizes[tensor] for tensor in kept if tensor in self._made_again)
                kept = tuple(self._made_again.get(tensor, tensor) for tensor in kept)
            if extra_saved:
                kept += (self.tensor(extra_saved),)
        if cheap and self._recomputes:
            self._origin[output] = tuple(reads)
        if made_again:
            self._made_again[output] = reads[0]
        unsaved = forward_work if unsaved_work is None else unsaved_work
        self._ops.append(
            Op(inputs, (*reads, *holds) if holds else reads, output, kept, forward_work, unsaved, backward_work, weight_gradient, view)
        )
        return output

    def _origins(self, kept: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """What must be kept to make ``kept`` again, and the bytes that making it again takes."""
        found: dict[int, None] = {}
        again = 0.0
        waiting = list(kept)
        while waiting:
            tensor = waiting.pop()
            origin = self._origin.get(tensor)
            if origin is None:
                found[tensor] = None
            else:
                again += self._sizes[tensor]
                waiting.extend(origin)
        return tuple(found), again

    def play(self) -> Profile:
        """Play forward (keeping and not keeping) and backward."""
        kept, forward_peak, unsaved_peak = self._forward()
        backward_peak, weight_gradient, kept_at_peak, weight_gradient_at_peak = self._backward()
        return Profile(
            saved=kept,
            output=self._sizes[self._ops[-1].output],
            forward_peak=forward_peak,
            forward_peak_unsaved=unsaved_peak,
            backward_peak=backward_peak,
            weight_gradient=weight_gradient,
            kept_at_peak=kept_at_peak,
            weight_gradient_at_peak=weight_gradient_at_peak,
            kept_input=self._sizes[0] if any(0 in op.saved for op in self._ops) else 0.0,
        )

    def _forward(self) -> tuple[float, float, float]:
        """What is kept at the end, and the peaks while keeping and while not keeping."""
        sizes, ops = self._sizes, self._ops
        last_read = {}
        for index, op in enumerate(ops):
            for tensor in op.reads:
                last_read[tensor] = index
        kept = {tensor for op in ops for tensor in op.saved}
        keeping = peak = passing = passing_peak = 0.0
        for index, op in enumerate(ops):
            made = sizes[op.output]
            keeping += made
            passing += made
            for tensor in op.saved:
                if tensor not in last_read and tensor != op.output:  # made beside the output
                    keeping += sizes[tensor]
            if keeping + op.forward_work > peak:
                peak = keeping + op.forward_work
            if passing + op.unsaved_work > passing_peak:
                passing_peak = passing + op.unsaved_work
            for tensor in op.reads:
                if tensor and last_read[tensor] == index:
                    last_read[tensor] = -1  # a tensor that an operation reads twice goes once
                    passing -= sizes[tensor]
                    if tensor not in kept:
                        keeping -= sizes[tensor]
        kept.discard(ops[-1].output)
        return sum([sizes[tensor] for tensor in kept]), peak, passing_peak

    def _backward(self) -> tuple[float, float, float, float]:
        """The peak, the gradients of weights at the end, and what of the peak is kept and gradients of weights."""
        gradients = GradientBuffers(self._sizes)
        holders: dict[int, int] = {}
        for op in self._ops:
            for tensor in op.saved:
                holders[tensor] = holders.get(tensor, 0) + 1
        sizes = self._sizes
        kept = sum([sizes[tensor] for tensor in holders])
        final = self._ops[-1].output
        if self._gradient[final]:
            gradients.give(final)
        peak, weight_gradient = kept + gradients.alive, 0.0
        at_peak = (kept, 0.0)
        for op in reversed(self._ops):
            if op.output not in gradients.buffer_of:
                continue
            weight_gradient += op.weight_gradient
            work = op.backward_work + kept + weight_gradient
            if op.view:
                gradients.pass_on(op.output, op.inputs)
            else:
                for tensor in op.inputs:
                    gradients.give(tensor)
            if work + gradients.most > peak:
                peak = work + gradients.most
                at_peak = (kept, weight_gradient)
            gradients.settle(op.output)
            for tensor in op.saved:
                holders[tensor] -= 1
                if holders[tensor] == 0:
                    kept -= sizes[tensor]
        return peak, weight_gradient, *at_peak
