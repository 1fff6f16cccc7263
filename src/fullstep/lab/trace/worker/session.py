"""One trace from its request to its result."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fullstep.errors import UnsupportedError
from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.lab.allocator import AllocatorSettings, Frame, replay, write_snapshot
from fullstep.lab.trace.front.wire import Request
from fullstep.lab.trace.worker import kernels, layout, method
from fullstep.lab.trace.worker.account import account, settle_holdings
from fullstep.lab.trace.worker.compat import UNITS, install_all, untested_versions
from fullstep.lab.trace.worker.compat.capabilities import say_capability
from fullstep.lab.trace.worker.compat.masks import say_packed
from fullstep.lab.trace.worker.data_dependent import Oracle
from fullstep.lab.trace.worker.model import DTYPES, Blocks, build_model, config_of, cut, find_blocks, with_fewer
from fullstep.lab.trace.worker.optimizers import build_optimizer
from fullstep.lab.trace.worker.places import Places
from fullstep.lab.trace.worker.recorder import Recorder, watching_resizes
from fullstep.lab.trace.worker.replicate import NotAlikeError, replicate, stretches
from fullstep.lab.trace.worker.steps import Program, mark_loss, run_steps
from fullstep.lab.trace.worker.stream import OUTSIDE, Stream, TensorRecord, settle_blocks
from fullstep.lab.trace.worker.workspaces import Workspaces
from fullstep.ledger import Caution, Trace

Report = Callable[[str], None]
_MARGIN = 2
"""equal stretches of blocks kept on either side of the one that is repeated: FSDP prefetches from one block to the next"""
_MICRO_BATCHES = 3
"""first, middle, last: those between are alike"""


def trace(request: Request, report: Report) -> Trace:
    """Traces one step.

    Args:
        request: of the front
        report: is told the stage that begins

    Raises:
        InputError: the worksheet or its config is at fault, or (UnsupportedError) cannot be traced
    """
    began = time.monotonic()
    settings = settings_of(worksheet_from_mapping(request.worksheet))
    faults = [*layout.refuse(settings), *method.refuse(settings), *kernels.refuse(settings)]
    if faults:
        raise UnsupportedError(*faults)
    report("preparing the libraries")
    install_all(UNITS)
    say_packed(settings.batch.packed)
    card = settings.machine.card
    if card is not None and card.compute_capability:
        major, _, minor = card.compute_capability.partition(".")
        say_capability((int(major), int(minor or 0)))
    mesh = layout.make_mesh(settings)
    notes: list[Caution] = [
        Caution("F202", f"{name} {has} is newer or older than what the tracer was tested with") for name, has in untested_versions().items()
    ]
    run = _Run(request.config, settings, mesh, report)
    if request.full_depth:
        stream, blocks = run.whole()
    else:
        try:
            stream, blocks = run.shortened()
        except NotAlikeError as error:
            notes.append(Caution("F203", f"every block was traced, because equal ones did not behave alike: {error}"))
            stream, blocks = run.whole()
    report("adding up")
    settle_holdings(stream)
    return _result(request, settings, run, stream, blocks, notes, began)


class _Run:
    """Builds and runs the model, in full or with fewer equal blocks."""

    def __init__(self, config: Any, settings: Settings, mesh: layout.Mesh, report: Report) -> None:
        self.settings, self.mesh, self.report = settings, mesh, report
        self.config = config
        self.parameters = self.trainable = self.operations = self.host_bytes = 0

    def whole(self) -> tuple[Stream, Blocks]:
        """Every block."""
        return self._recorded(lambda blocks: blocks)

    def shortened(self) -> tuple[Stream, Blocks]:
        """Equal blocks a few times, and the stream of the whole model made from that.

        Raises:
            NotAlikeError: they do not behave alike
        """
        stream, blocks = self._recorded(lambda blocks: with_fewer(blocks, _MARGIN))
        if not blocks.repeated:
            return stream, blocks
        self.report("repeating equal blocks")
        return replicate(stream, stretches(len(blocks.kept), blocks.first, blocks.length, blocks.repeated)), blocks

    def _recorded(self, choose: Callable[[Blocks], Blocks]) -> tuple[Stream, Blocks]:
        settings = self.settings
        with ExitStack() as stack:
            mode = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            stack.enter_context(Oracle(settings))
            self.report("building the model")
            model = build_model(config_of(self.config), DTYPES[settings.precision.weights], settings.step.attention)
            blocks = choose(find_blocks(model))
            adapted_parts = _Sizes.of(model, blocks)
            kept = cut(model, blocks)
            head = getattr(model, "get_output_embeddings", lambda: None)()
            adapted = method.apply_method(model, settings)
            method.checkpoint_activations(adapted if hasattr(adapted, "gradient_checkpointing_enable") else model, kept, settings)
            kernels.impose(model, head, settings)
            self.parameters, self.trainable = adapted_parts.counted(adapted, kept, blocks)
            places = Places()
            recorder = Recorder(mode, places, Workspaces(settings.machine.card))
            places.learn(adapted, kept, head)
            owner = _owners(adapted, kept)
            wrapped = self._wrapped(adapted, kept, recorder, owner)
            self.report(f"tracing {len(kept)} of {len(blocks.kinds)} blocks" if len(kept) < len(blocks.kinds) else f"tracing {len(kept)} blocks")
            self._run(recorder, places, model, wrapped, owner)
            self.operations += recorder.operations
            self.host_bytes = recorder.host_bytes
            stream = recorder.stream
        gc.collect()
        settle_blocks(stream)
        return stream, blocks

    def _wrapped(self, adapted: nn.Module, kept: Sequence[nn.Module], recorder: Recorder, owner: Any) -> layout.Spread:
        if self.settings.layout.strategy == "ddp":
            _label_model(recorder, adapted, owner)
            with recorder:
                return layout.spread(adapted, kept, self.mesh, self.settings, recorder)
        spread = layout.spread(adapted, kept, self.mesh, self.settings, recorder)
        _label_model(recorder, spread.model, owner)
        return spread

    def _run(self, recorder: Recorder, places: Places, base: nn.Module, spread: layout.Spread, owner: Any) -> None:
        settings = self.settings
        trained = [p for p in spread.model.parameters() if p.requires_grad]
        program = Program(
            settings=settings,
            model=spread.model,
            base=base,
            optimizer=build_optimizer(settings.optimizer, trained),
            micro_batches=min(settings.batch.accumulation, _MICRO_BATCHES),
            syncs=spread.syncs,
            block_of=owner,
            around_forward=kernels.around_forward(settings, recorder),
        )
        mark_loss(base, recorder)
        places.follow()
        try:
            with watching_resizes(recorder), recorder:
                run_steps(program, recorder)
        finally:
            places.stop()


class _Sizes:
    """Parameters of the blocks that are left out, so that those of the whole model can be said."""

    def __init__(self, left_out: int) -> None:
        self._left_out = left_out

    @classmethod
    def of(cls, model: nn.Module, blocks: Blocks) -> _Sizes:
        return cls(len(blocks.kinds) - len(blocks.kept))

    def counted(self, adapted: nn.Module, kept: Sequence[nn.Module], blocks: Blocks) -> tuple[int, int]:
        """(all, trained) of the whole model; packed weights count as the elements that they stand for."""
        every = sum(_elements(p, m) for m, p in _with_modules(adapted))
        trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
        if blocks.repeated:
            start = blocks.first
            stretch = kept[start : start + blocks.length]
            every += blocks.repeated * sum(_elements(p, m) for block in stretch for m, p in _with_modules(block))
            trained += blocks.repeated * sum(p.numel() for block in stretch for p in block.parameters() if p.requires_grad)
        return every, trained


def _with_modules(model: nn.Module) -> list[tuple[nn.Module, nn.Parameter]]:
    seen: set[int] = set()
    found = []
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found.append((module, parameter))
    return found


def _elements(parameter: nn.Parameter, module: nn.Module) -> int:
    if parameter.dtype == torch.uint8:
        return int(module.in_features) * int(module.out_features)  # type: ignore[arg-type]
    return parameter.numel()


def _owners(model: nn.Module, blocks: Sequence[nn.Module]) -> Callable[[nn.Parameter], int]:
    """From a parameter, also after FSDP has replaced it, to its block: by the module that holds it."""
    def find(parameter: nn.Parameter) -> int:
        found = owner.get(id(parameter))
        if found is None:
            owner.update({id(p): index for index, block in enumerate(blocks) for p in block.parameters()})
            found = owner.setdefault(id(parameter), OUTSIDE)
        return found

    owner: dict[int, int] = {}
    return find


def _label_model(recorder: Recorder, model: nn.Module, owner: Callable[[nn.Parameter], int]) -> None:
    named = list(model.named_parameters())
    recorder.hold((p for _, p in named), "weights", lambda number: owner(named[number][1]), lambda number: named[number][0].rpartition(".")[0])
    for name, module in model.named_modules():
        packed = getattr(module, "weight", None) is not None and module._buffers.get("absmax") is not None
        buffers = [buffer for buffer in module._buffers.values() if buffer is not None]
        if buffers:
            weight = next(module.parameters(recurse=False), None)
            block = owner(weight) if weight is not None else OUTSIDE
            recorder.hold(buffers, "weights" if packed else "buffers", lambda _, block=block: block)


def _result(
    request: Request, settings: Settings, run: _Run, stream: Stream, blocks: Blocks, notes: list[Caution], began: float
) -> Trace:  # fmt: skip
    found = account(stream)
    kept = [holding != "host" for holding in (record.holding for record in stream.tensors)]
    events = [(which, size, on) for which, size, on in stream.events() if kept[which]]
    allocator = AllocatorSettings(expandable_segments=settings.step.expandable_segments, capacity_bytes=_capacity(settings))
    played = replay(events, allocator)
    if played.out_of_memory is not None:
        unlimited = replay(events, replace(allocator, capacity_bytes=None))
        failure = played.out_of_memory
        ran_out = _out_of_memory(stream, kept, failure)
        played = unlimited
    else:
        ran_out = ""
    if request.snapshot is not None:
        frames = [_frames(stream.tensors[which]) for which, _, _ in events]
        write_snapshot(Path(request.snapshot), events, allocator, frames=frames, categories=[stream.tensors[which].holding for which, _, _ in events])
    return Trace(
        parameters=run.parameters,
        trainable_parameters=run.trainable,
        instants=found.instants,
        peak_at=found.peak_at,
        allocated_peak_bytes=found.peak_bytes,
        reserved_peak_bytes=played.peak_reserved_bytes,
        host_bytes=run.host_bytes,
        timeline=found.timeline,
        largest=found.largest,
        modules=found.modules,
        flops_per_step=found.flops,
        blocks=len(blocks.kinds),
        blocks_traced=len(blocks.kept),
        operations=run.operations,
        segments=played.segments,
        out_of_memory=ran_out,
        notes=tuple(notes),
        versions=tuple((name, version(name)) for name in ("torch", "transformers", "peft")),
        seconds=round(time.monotonic() - began, 2),
    )


def _capacity(settings: Settings) -> int | None:
    """What torch's allocator can have of the card: its usable bytes less the context."""
    from fullstep.hardware import device_overheads  # noqa: PLC0415

    usable = settings.machine.usable_bytes
    return None if usable is None else int(usable - device_overheads(settings.machine.card).context_bytes.likely)


def _out_of_memory(stream: Stream, kept: Sequence[bool], failure: Any) -> str:
    index = [index for index, which in enumerate(stream.which) if kept[which]][failure.event_index]
    segment = stream.segments[stream.segment_of_event[index]]
    record = stream.tensors[stream.which[index]]
    return (
        f"{failure.requested_bytes / 2**30:.2f} GiB asked for by {record.operation} in {record.module or 'the step'}"
        f" ({segment.phase.replace('_', ' ')} of step {segment.step}) with {failure.allocated_bytes / 2**30:.2f} GiB allocated"
    )


def _frames(record: TensorRecord) -> tuple[Frame, ...]:
    file, number = record.line if isinstance(record.line, tuple) else (record.line, 0)
    inner = Frame(filename=file or "torch", line=number, name=record.operation)
    return (inner, Frame(filename=record.module or "step", line=0, name=record.module or "step"))
