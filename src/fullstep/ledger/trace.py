"""What a trace saw: one full step of the real model class, written in the common books."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fullstep.ledger.answer import Caution
from fullstep.ledger.instants import At, Instant

Phase = Literal["inputs", "forward", "loss", "backward", "optimizer_step", "gradients_cleared"]


class Moment(NamedTuple):
    """A landmark of the step: one stretch of one phase, inside one block or outside all of them."""

    step: int
    """of the optimizer, from 1 on"""
    micro_batch: int
    """from 1 on, with gaps where middle ones are alike; 0 in the optimizer's step and when gradients are cleared"""
    phase: Phase
    block: int | None
    """counted from the embedding on; None outside the blocks"""
    allocated_peak_bytes: int
    allocated_end_bytes: int
    flops: int
    """floating-point operations of matrix products, convolutions and attention in it"""


class LiveTensor(NamedTuple):
    """Storage that is alive at the peak, or several that only differ by the block that they belong to."""

    size_bytes: int
    """of all of them together"""
    copies: int
    """alike, of this shape each"""
    holding: str
    """one of :data:`fullstep.ledger.HOLDINGS`"""
    shape: tuple[int, ...]
    dtype: str
    module: str
    """that made it, by its name in the model; the number of a block is ``*`` where several are taken together"""
    operation: str
    line: str
    """``file.py:123 source code`` of the model's or the library's code that asked for it; empty where C++ did on its own"""


class ModuleShare(NamedTuple):
    """What a module holds at the peak."""

    module: str
    holding: str
    size_bytes: int


class Trace(NamedTuple):
    """One rank's steady step. Sizes in bytes on one GPU; allocated as torch counts it, reserved by a replay of the stream."""

    parameters: int
    trainable_parameters: int
    instants: tuple[Instant, ...]
    peak_at: At
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    host_bytes: int
    """in host memory of one rank: what was offloaded"""
    timeline: tuple[Moment, ...]
    """of the second optimizer step"""
    largest: tuple[LiveTensor, ...]
    """alive at the peak, largest first"""
    modules: tuple[ModuleShare, ...]
    flops_per_step: int
    """of one optimizer step on this rank, recomputation included"""
    blocks: int
    blocks_traced: int
    """fewer than ``blocks`` where equal blocks were traced a few times and repeated; the same bytes come out"""
    operations: int
    segments: int
    """of the caching allocator at the end"""
    out_of_memory: str
    """empty where the replay found room on the card; else what was asked for and when"""
    notes: tuple[Caution, ...]
    versions: tuple[tuple[str, str], ...]
    seconds: float
    """that the trace took; 0 where it came from the cache"""
