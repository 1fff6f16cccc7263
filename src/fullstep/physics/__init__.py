"""Arithmetic of a training step."""

from fullstep.physics.memory import estimate_memory

__all__ = ["estimate_memory"]
