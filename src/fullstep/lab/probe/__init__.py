"""A probe: real full steps on real hardware, measured."""

from fullstep.lab.probe.front.limits import faults_of, notes_of
from fullstep.lab.probe.front.probe import Wanted, run_probe
from fullstep.lab.probe.task import COUNTED

__all__ = ["COUNTED", "Wanted", "faults_of", "notes_of", "run_probe"]
