"""Three witnesses: a pilot's figures outrank a trace, a trace outranks the formulas, and all are shown."""

from fullstep.calibration.pilot import MEMORY_KEYS, Comparison, compare_with_pilot, outrank
from fullstep.calibration.step import beside_step, measured_network, measured_utilization, outrank_step

__all__ = [
    "MEMORY_KEYS", "Comparison", "beside_step", "compare_with_pilot", "measured_network",
    "measured_utilization", "outrank", "outrank_step",
]  # fmt: skip
