"""GPUs and nodes that exist."""

from fullstep.hardware.card import Card, Link

__all__ = ["Card", "Link"]
