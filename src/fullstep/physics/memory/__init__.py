"""The memory of a training step: what is alive on a GPU at each instant, and why."""

from fullstep.physics.memory.estimate import estimate_memory

__all__ = ["estimate_memory"]
