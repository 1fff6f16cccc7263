"""Measured against estimated: a pilot's figures outrank the formulas, and both are shown."""

from fullstep.calibration.pilot import MEMORY_KEYS, Comparison, compare_with_pilot, outrank

__all__ = ["MEMORY_KEYS", "Comparison", "compare_with_pilot", "outrank"]
