"""From a settled stream to the result: accounts, the replay through the allocator, and the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from fullstep.errors import Fault, InputError
from fullstep.job import Settings
from fullstep.job.outside import outside_allocator
from fullstep.lab.allocator import AllocatorSettings, Event, Frame, OutOfMemory, Replay, replay, write_snapshot
from fullstep.lab.program.blocks import Blocks
from fullstep.lab.trace.worker.account import account, settle_holdings
from fullstep.lab.trace.worker.offload import host_peak_bytes
from fullstep.lab.trace.worker.run import Sizes
from fullstep.lab.trace.worker.stream import Stream, TensorRecord
from fullstep.ledger import Trace
from fullstep.quantities import GIB

_LIBRARIES = ("torch", "transformers", "peft")


def result_of(stream: Stream, blocks: Blocks, sizes: Sizes, settings: Settings, snapshot: str | None) -> Trace:
    """The trace, without notes and seconds.

    Args:
        stream: of the whole model
        blocks: which of them ran
        sizes: counts of the whole model
        settings: of the worksheet
        snapshot: where to write torch's memory snapshot; None: nowhere
    """
    settle_holdings(stream)
    found = account(stream, settings.batch.accumulation)
    on_device = [index for index, which in enumerate(stream.which) if stream.tensors[which].holding != "host"]
    events = [(stream.which[index], stream.sizes[index], stream.streams[index]) for index in on_device]
    allocator = AllocatorSettings(expandable_segments=settings.step.expandable_segments, capacity_bytes=_capacity_bytes(settings))
    played, ran_out = _played(events, allocator, [stream.segment_of_event[index] for index in on_device], stream)
    if snapshot is not None:
        records = [stream.tensors[which] for which, _, _ in events]
        known: dict[object, tuple[Frame, ...]] = {}
        frames = [known.setdefault((record.line, record.operation, record.module), _frames(record)) for record in records]
        try:
            write_snapshot(Path(snapshot), events, allocator, frames=frames, categories=[record.holding for record in records])
        except OSError as error:
            why = f"cannot be written: {error.strerror or error}"
            raise InputError(Fault("--snapshot", why, "a file in a folder with room for it")) from error
    return Trace(
        parameters=sizes.parameters,
        trainable_parameters=sizes.trainable_parameters,
        instants=found.instants,
        peak_at=found.peak_at,
        allocated_peak_bytes=found.peak_bytes,
        reserved_peak_bytes=played.peak_reserved_bytes,
        host_bytes=host_peak_bytes(stream),
        timeline=found.timeline,
        largest=found.largest,
        modules=found.modules,
        flops_per_step=found.flops,
        blocks=len(blocks.kinds),
        blocks_traced=len(blocks.kept),
        operations=sizes.operations,
        segments=played.segments,
        out_of_memory=ran_out,
        notes=(),
        versions=tuple((name, version(name)) for name in _LIBRARIES),
        seconds=0,
    )


def _capacity_bytes(settings: Settings) -> int | None:
    """What torch's allocator can have of the card: its usable bytes less the context and the communicator; None: no card is named."""
    usable = settings.machine.usable_bytes
    return None if usable is None else int(usable - outside_allocator(settings).likely)


def _played(events: Sequence[Event], allocator: AllocatorSettings, segments: Sequence[int], stream: Stream) -> tuple[Replay, str]:
    """The replay on this card, or where memory ran out on one without end, and in words where it ran out."""
    played = replay(events, allocator)
    failure = played.out_of_memory
    if failure is None:
        return played, ""
    record = stream.tensors[events[failure.event_index][0]]
    unlimited = replay(events, replace(allocator, capacity_bytes=None))
    return unlimited, _ran_out(failure, record, stream, segments[failure.event_index])


def _ran_out(failure: OutOfMemory, record: TensorRecord, stream: Stream, segment: int) -> str:
    at = stream.segments[segment]
    return (
        f"{failure.requested_bytes / GIB:.2f} GiB asked for by {record.operation} in {record.module or 'the step'}"
        f" ({at.phase.replace('_', ' ')} of step {at.step}) with {failure.allocated_bytes / GIB:.2f} GiB allocated"
    )


def _frames(record: TensorRecord) -> tuple[Frame, ...]:
    """The line of code, then the module as if it had called it."""
    file, number = record.line if isinstance(record.line, tuple) else (record.line, 0)
    return Frame(file or "torch", number, record.operation), Frame(record.module or "step", 0, record.module or "step")
