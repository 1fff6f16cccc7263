"""Two optimizer steps with accumulation, marked where phases begin."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fullstep.job.job import Settings
from fullstep.lab.program.casting import answered_as_on_gpus
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.trace.worker.optimizers import host_states, states_of
from fullstep.lab.trace.worker.recorder import Recorder
from fullstep.lab.trace.worker.stream import Segment

STEPS = 2
"""the second one is steady: states exist, the allocator knows the sizes"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a step is made of."""

    settings: Settings
    model: nn.Module
    """as it is called: wrapped where the layout wraps it"""
    base: nn.Module
    """the class of transformers"""
    optimizer: torch.optim.Optimizer
    micro_batches: int
    """fewer than the worksheet accumulates where the middle ones are alike"""
    syncs: Callable[[bool], contextlib.AbstractContextManager[None]]
    """argument: last micro-batch of the step"""
    block_of: Callable[[nn.Parameter], int]
    around_forward: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext


def run_steps(program: Program, recorder: Recorder) -> None:
    """Runs and marks two optimizer steps. Call it inside the fake mode and the recorder."""
    settings, optimizer = program.settings, program.optimizer
    stays = settings.step.gradients_cleared == "before_backward" and not _keeps_gradients_itself(settings)
    for step in range(1, STEPS + 1):
        for micro_batch in range(1, program.micro_batches + 1):
            _micro_batch(program, recorder, step, micro_batch, clears=stays and micro_batch == 1)
        recorder.mark(Segment(step, 0, "optimizer_step"))
        if not settings.optimizer.in_backward:
            optimizer.step()
        recorder.keep_on_host(host_states(optimizer))
        _label_states(program, recorder)
        recorder.mark(Segment(step, 0, "gradients_cleared"))
        if not stays:
            optimizer.zero_grad()
    recorder.stop()


def _keeps_gradients_itself(settings: Settings) -> bool:
    """FSDP1 holds on to the flat gradient when those of its parts are let go, until the next forward begins.

    Source: torch.distributed.fsdp._runtime_utils._root_pre_forward, which calls _reset_flat_param_grad_info_if_needed.
    """
    return settings.layout.implementation == "fsdp1"


def _micro_batch(program: Program, recorder: Recorder, step: int, micro_batch: int, *, clears: bool) -> None:
    settings, last = program.settings, micro_batch == program.micro_batches
    recorder.mark(Segment(step, micro_batch, "inputs"))
    inputs = _inputs(settings)
    recorder.hold(inputs.values(), "buffers")
    with program.syncs(last):
        recorder.mark(Segment(step, micro_batch, "forward"))
        with _autocast(settings), program.around_forward():
            output = program.model(**inputs, use_cache=False)
        loss: Tensor = output.loss
        kept = output if settings.step.keeps_outputs else None
        del output
        inputs.clear()
        if program.micro_batches > 1:
            loss = loss / program.micro_batches
        if clears:
            program.optimizer.zero_grad()
        recorder.mark(Segment(step, micro_batch, "backward"))
        loss.backward()
        del loss, kept
    trained = [(name, p) for name, p in program.model.named_parameters() if p.requires_grad]
    gradients = (p.grad for _, p in trained)
    recorder.hold(gradients, "gradients", lambda at: program.block_of(trained[at][1]), lambda at: trained[at][0].rpartition(".")[0])


def _inputs(settings: Settings) -> dict[str, Tensor]:
    batch = settings.batch
    shape = (batch.micro_batch, batch.sequence_tokens)
    found = {"input_ids": torch.zeros(shape, dtype=torch.long), "labels": torch.zeros(shape, dtype=torch.long)}
    if not batch.packed:
        found["attention_mask"] = torch.ones(shape, dtype=torch.long)
    return found


@contextlib.contextmanager
def _autocast(settings: Settings) -> Iterator[None]:
    """Autocast as on a GPU: the processor's, with CUDA's lists, and code that asks whether CUDA's is on is told so."""
    if not settings.precision.autocast:
        yield
        return
    with answered_as_on_gpus(settings), torch.autocast("cpu", dtype=DTYPES[settings.precision.compute]):
        yield


def _label_states(program: Program, recorder: Recorder) -> None:
    owners = {id(p): name.rpartition(".")[0] for name, p in program.model.named_parameters()}
    found = [(p, value) for p, _, value in states_of(program.optimizer)]
    states = (value for _, value in found)
    recorder.hold(states, "optimizer_states", lambda at: program.block_of(found[at][0]), lambda at: owners.get(id(found[at][0]), ""))


@contextlib.contextmanager
def loss_marked(base: nn.Module, recorder: Recorder) -> Iterator[None]:
    """The loss is a phase of its own: from the call of the class's loss function on, or of torch's cross entropy where it has none."""
    inside = False

    def marking(compute: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            segment = recorder.stream.segments[-1]
            if inside or segment.phase not in ("forward", "loss"):
                return compute(*args, **kwargs)
            inside = True
            recorder.mark(Segment(segment.step, segment.micro_batch, "loss"))
            recorder.places.enter_loss()
            try:
                return compute(*args, **kwargs)
            finally:
                recorder.places.leave_loss()
                inside = False

        return run

    before = {name: getattr(functional, name) for name in ("cross_entropy", "nll_loss")}
    base.loss_function = marking(base.loss_function)  # type: ignore[arg-type, assignment]
    for name, compute in before.items():
        setattr(functional, name, marking(compute))
    try:
        yield
    finally:
        for name, compute in before.items():
            setattr(functional, name, compute)
