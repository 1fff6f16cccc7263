"""A trace: one full step of the real model class, run by a worker process on tensors without data."""

from fullstep.lab.trace.front import LIMIT_SECONDS, trace_step

__all__ = ["LIMIT_SECONDS", "trace_step"]
