"""Gradients of activations as autograd's input buffers hold them, by size."""

from __future__ import annotations

from collections.abc import Sequence


class _Buffer:
    __slots__ = ("owners", "size")

    def __init__(self, size: float) -> None:
        self.owners = 1
        self.size = size


class GradientBuffers:
    """Shared by views; a second gradient is added in place to one that is held once."""

    __slots__ = ("_sizes", "alive", "buffer_of", "most")

    def __init__(self, sizes: list[float]) -> None:
        self._sizes = sizes
        self.buffer_of: dict[int, _Buffer] = {}
        self.alive = 0.0
        self.most = 0.0

    def give(self, tensor: int) -> None:
        """A fresh gradient for ``tensor``; a second one is added to the first."""
        size = self._sizes[tensor]
        self.alive += size
        if self.alive > self.most:
            self.most = self.alive
        held = self.buffer_of.get(tensor)
        if held is None:
            self.buffer_of[tensor] = _Buffer(size)
        elif held.owners == 1:
            self.alive -= size
        else:
            held.owners -= 1
            self.most = max(self.most, self.alive + size)
            self.buffer_of[tensor] = _Buffer(size)

    def pass_on(self, output: int, inputs: Sequence[int]) -> None:
        """The output's gradient itself becomes the gradient of each input."""
        buffer = self.buffer_of[output]
        for tensor in inputs:
            held = self.buffer_of.get(tensor)
            if held is None:
                self.buffer_of[tensor] = buffer
                buffer.owners += 1
            elif held.owners > 1:
                held.owners -= 1
                self.alive += self._sizes[tensor]
                self.most = max(self.most, self.alive)
                self.buffer_of[tensor] = _Buffer(self._sizes[tensor])

    def settle(self, output: int) -> None:
        """Backward of an operation has ended: its output's gradient goes."""
        buffer = self.buffer_of.pop(output)
        buffer.owners -= 1
        if buffer.owners == 0:
            self.alive -= buffer.size
        self.most = self.alive
