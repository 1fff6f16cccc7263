"""What is alive on a GPU at a named instant of the step."""

from __future__ import annotations

from typing import Literal, NamedTuple

At = Literal["forward", "loss", "backward", "second_forward", "optimizer_step"]


class Holdings(NamedTuple):
    """Bytes on one GPU by what they are for. They add up to what is allocated."""

    weights: float = 0
    gradients: float = 0
    optimizer_states: float = 0
    activations: float = 0
    logits_and_loss: float = 0
    gathered_parameters: float = 0
    temporaries: float = 0
    buffers: float = 0

    @property
    def allocated_bytes(self) -> float:
        """The sum of all holdings.

        >>> Holdings(weights=2, gradients=3).allocated_bytes
        5
        """
        return sum(self)


HOLDINGS: tuple[str, ...] = Holdings._fields


class Instant(NamedTuple):
    """One named instant at its worst moment: what is alive then, and where in the model it is."""

    at: At
    holdings: Holdings
    place: str = ""
    """for people, for example ``block 31``"""

    @property
    def allocated_bytes(self) -> float:
        return sum(self.holdings)
