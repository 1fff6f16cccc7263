"""Changes to libraries that let a step run on fake tensors as it would run on CUDA. Each is a small unit with a name and a self-test.

None of them touches a binary. They are made once in a worker process, which ends with its trace.
"""

from fullstep.lab.trace.worker.compat.unit import TESTED, Unit, install_all, untested_versions
from fullstep.lab.trace.worker.compat.units import UNITS

__all__ = ["TESTED", "UNITS", "Unit", "install_all", "untested_versions"]
