"""A drill that ends before there is anything to compare: a checkpoint was not made, or does not come back."""

from __future__ import annotations

from fullstep.errors import FullstepError


class DrillFailedError(FullstepError):
    """Saving or loading failed, and said so.

    Args:
        leg: in which it happened
        what: in words
    """

    def __init__(self, leg: str, what: str) -> None:
        self.leg, self.what = leg, what
        super().__init__(f"{leg}: {what}")
