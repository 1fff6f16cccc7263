"""A drill: a training that is saved, killed, and resumed in new processes, and has to go on as if nothing had happened."""

from fullstep.lab.drill.front.drill import Elsewhere, Wanted, run_drill
from fullstep.lab.drill.front.failed import DrillFailedError
from fullstep.lab.drill.front.limits import faults_of, notes_of
from fullstep.lab.drill.front.place import is_url, require_place

__all__ = [
    "DrillFailedError", "Elsewhere", "Wanted", "faults_of", "is_url", "notes_of", "require_place", "run_drill",
]  # fmt: skip
