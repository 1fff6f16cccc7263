"""The common books: estimate, trace and measurement are written in these same types."""

from fullstep.ledger.answer import Answer, Caution, HostMemory, Memory, OtherPeaks, Verdict
from fullstep.ledger.bill import Bill, BillLine, Cost
from fullstep.ledger.checkpoint import Checkpoint, CheckpointInterval, CheckpointPart, Container, StorageNeed, Suffices
from fullstep.ledger.estimate import MemoryEstimate
from fullstep.ledger.instants import HOLDINGS, Holdings, Instant
from fullstep.ledger.time import Flop, Run, StepPart, StepTime, Timing, Traffic
from fullstep.ledger.trace import LiveTensor, ModuleShare, Moment, Trace

__all__ = [
    "HOLDINGS", "Answer", "Bill", "BillLine", "Caution", "Checkpoint", "CheckpointInterval", "CheckpointPart", "Container", "Cost", "Flop",
    "Holdings", "HostMemory", "Instant", "LiveTensor", "Memory", "MemoryEstimate", "ModuleShare", "Moment", "OtherPeaks", "Run", "StepPart",
    "StepTime", "StorageNeed", "Suffices", "Timing", "Trace", "Traffic", "Verdict",
]  # fmt: skip
