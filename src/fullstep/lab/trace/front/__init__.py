"""The front of a trace: what asks for it, without torch."""

from fullstep.lab.trace.front.step import LIMIT_SECONDS, trace_step

__all__ = ["LIMIT_SECONDS", "trace_step"]
