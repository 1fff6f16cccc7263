"""Three witnesses: a pilot's figures outrank a trace, a trace outranks the formulas, and all are shown."""

from fullstep.calibration.pilot import MEMORY_KEYS, Comparison, compare_with_pilot, outrank

__all__ = ["MEMORY_KEYS", "Comparison", "compare_with_pilot", "outrank"]
