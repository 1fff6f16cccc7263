"""Seconds that one GPU computes: a micro-batch forward and backward, and the optimizer step."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.physics.memory.choices import compute_bytes, loss_habit
from fullstep.physics.memory.megatron import is_megatron
from fullstep.physics.memory.weights import gradient_bytes, trainable
from fullstep.physics.timing import traffic
from fullstep.physics.timing.block_time import BlockTime, add_product, block_time
from fullstep.physics.timing.flops import stages_with_first
from fullstep.physics.timing.optimizer import experts_elsewhere, offloaded_bytes, orthogonalization_flop, step_bytes, trained_on_rank
from fullstep.physics.timing.products import output_matrix
from fullstep.physics.timing.rates import Rates, achieved, card_rates, seconds_at, times
from fullstep.physics.timing.tally import Tally, TimePart, TimePhase
from fullstep.physics.timing.traffic import Traffic
from fullstep.physics.timing.workload import stage_blocks, workload_of
from fullstep.quantities import DTYPE_BYTES, Bounds


def compute_parts(job: Job) -> tuple[TimePart, ...] | None:
    """Seconds of one micro-batch (forward, backward with what is computed again) and of one optimizer step, on one GPU.

    Matrix products by their sides at the card's achieved rate; attention at its kernel's; everything between them by bytes read and
    written; where Python cannot launch kernels as fast as the GPU runs them, the rest of that time is a part of its own, bound by launch.
    Communication and pipeline bubbles are not part of it.

    Args:
        job: complete; its machine names a card

    Returns:
        parts that add up; None where the card or its rates are not known (see ``why_no_time``)

    Source:
        the rates' table, and the functions named

    Valid:
        see the throughput table
    """
    rates = card_rates(job.machine.card) if job.machine.card is not None else None
    if rates is None:
        return None
    tally = Tally()
    for stage, first in stages_with_first(job):
        block = job.shape.blocks[stage.kind]
        once, again = block_time(rates, block, workload_of(job, block), hidden=job.shape.hidden, first=first)
        tally.add_all(once, stage.blocks)
        tally.add_all(again, stage.checkpointed)
    _add_head(tally, job, rates)
    tally.add_traffic("copies of weights and gradients", _whole_copies(job), rates)
    _add_launches(tally, job)
    _add_offloaded_activations(tally, job, rates)
    _add_offloaded_parameters(tally, job, rates)
    _add_optimizer_step(tally, job, rates)
    return tally.as_parts()


def why_no_time(job: Job) -> str:
    """Why ``compute_parts`` gives none; empty where it does.

    Returns:
        the reason, for people
    """
    if job.machine.card is None:
        return "the worksheet names no GPU"
    if card_rates(job.machine.card) is None:
        return f"no 16-bit rate of {job.machine.card.key} is known"
    return ""


def part_seconds(parts: tuple[TimePart, ...], phase: TimePhase | None = None) -> Bounds:
    """The sum of the parts of a phase, or of all [s]; forward and backward of one micro-batch."""
    total = Bounds(0, 0, 0)
    for part in parts:
        if phase in (None, part.phase):
            total += part.seconds
    return total


def compute_seconds(job: Job) -> Bounds | None:
    """Seconds that one GPU computes for an optimizer step: ``accumulation * (forward + backward) + optimizer step``.

    Returns:
        [s] without communication and bubbles; None where ``compute_parts`` is None
    """
    parts = compute_parts(job)
    if parts is None:
        return None
    micro = part_seconds(parts, "forward") + part_seconds(parts, "backward")
    return times(micro, job.batch.accumulation) + part_seconds(parts, "optimizer_step")


def _add_head(tally: Tally, job: Job, rates: Rates) -> None:
    """Final norm, output matrix and loss."""
    shape, layout, habit = job.shape, job.layout, loss_habit(job)
    work = workload_of(job, shape.blocks[-1])._replace(fp8=False)
    head = BlockTime(Tally(), Tally())
    add_product(head, rates, output_matrix(job), work)
    tally.add_all(head.once, 1.0)
    logits = job.batch.tokens / layout.context * shape.vocabulary / layout.tensor
    moved = traffic.loss_traffic(
        logits, compute_bytes(job), habit.input_bytes, kernel=habit.kernel, copies_shifted=habit.copies_shifted,
        compiled=habit.compiled or job.step.framework == "megatron",
    )  # fmt: skip
    if shape.final_norm is not None:
        elements = work.tokens * shape.hidden / layout.tensor
        moved = moved.plus(traffic.norm_traffic(shape.final_norm, elements, work.kernels.residual, fused=work.fused, trains=True))
    tally.add_traffic("loss", moved, rates)


def _whole_copies(job: Job) -> Traffic:
    """Copies of weights and gradients per micro-batch: autocast's casts, what FSDP copies out and in, buckets, the sum with old gradients.

    Megatron's products add to float32 gradients that lie in their buckets already: read there (4) and written in 4 bytes, not in 2.

    Source:
        torch.distributed.fsdp, _fsdp_collectives.py (FSDP2 copies gathered parameters out); torch.autocast; torch DDP, reducer.cpp
        (gradients are copied to their bucket and back when they are reduced); Megatron-LM, gradient_accumulation_fusion
    """
    layout, precision, accumulation = job.layout, job.precision, job.batch.accumulation
    here = (job.shape.parameters - experts_elsewhere(job)) / (layout.tensor * layout.pipeline)
    trains = trained_on_rank(job)
    size, stored = compute_bytes(job), DTYPE_BYTES[precision.weights]
    kept = DTYPE_BYTES[precision.gradients] if job.method.kind == "full" else round(gradient_bytes(job) / max(1, trainable(job).total))
    moved = Traffic()
    if layout.divides_parameters and layout.state_ranks > 1:
        out = 2.0 * size * here if layout.implementation == "fsdp2" and not job.method.is_quantized else 0.0
        again = 0.0 if layout.reshard_after_forward is False else out
        reduced = traffic.cast_traffic(trains, size, DTYPE_BYTES[precision.reduce]) or 2.0 * size * trains
        moved = Traffic(out, again + reduced)
    elif precision.autocast and stored > size and not job.method.is_quantized:
        moved = Traffic(traffic.cast_traffic(here, stored, size), traffic.cast_traffic(trains, size, kept))
    if is_megatron(job):
        return moved.plus(Traffic(0.0, (2.0 * kept - size) * trains))
    if layout.strategy in ("ddp", "zero1", "zero2") and layout.data_parallel * layout.context > 1:
        moved = moved.plus(Traffic(0.0, 4.0 * kept * trains / (1 if layout.sync_every_micro_batch else accumulation)))
    divides = layout.sync_every_micro_batch and (layout.divides_parameters or layout.strategy == "zero2")
    summed = 3.0 * kept * trains * (accumulation - 1) / accumulation / (layout.state_ranks if divides else 1)
    return moved.plus(Traffic(0.0, summed))


def _add_launches(tally: Tally, job: Job) -> None:
    """What the GPU waits for launches: ``max(0, kernels * seconds per launch - seconds of the kernels)``, phase by phase.

    What is computed again in backward is launched by Python, as forward is; so is the backward pass of Megatron and Transformer Engine,
    whose modules are autograd functions written in Python. ZeRO-3 runs hooks before and after each module of each pass.
    """
    hook = achieved("zero3_hook") if job.layout.strategy == "zero3" else Bounds(0, 0, 0)
    compiled = job.step.compile
    by_python = achieved("launch_compiled" if compiled else "launch_forward")
    by_autograd = by_python if is_megatron(job) else achieved("launch_compiled" if compiled else "launch_backward")
    modules = float(_modules(job))
    again = 0.0 if job.step.activation_checkpointing == "none" else modules
    counts = tally.launches
    phases: tuple[tuple[TimePhase, Bounds], ...] = (
        ("forward", times(by_python, counts["forward"]) + times(hook, modules)),
        ("backward", times(by_autograd, counts["backward"]) + times(by_python, counts["again"]) + times(hook, modules + again)),
    )
    for phase, launching in phases:
        waits = [max(0.0, launched - work) for launched, work in zip(launching, tally.busy(phase), strict=True)]
        tally.add("waiting for launches", phase, Bounds(*sorted(waits)), "launch")


def _modules(job: Job) -> int:
    """Modules of the blocks: layers, norms, the block with its attention, feed-forward and activation, and four for each adapter."""
    total = 0
    for index in job.shape.layers:
        block = job.shape.blocks[index]
        adapted = sum(linear.adapter_target in job.method.targets for linear in block.linears) if job.method.kind != "full" else 0
        total += len(block.linears) + len(block.norms) + 4 + 4 * adapted
    return total


def _add_offloaded_activations(tally: Tally, job: Job, rates: Rates) -> None:
    """Block inputs go to the host in forward and come back in backward."""
    if job.step.activation_offload:
        blocks = sum(stage.blocks for stage in stage_blocks(job))
        stream = job.batch.tokens * job.shape.hidden * compute_bytes(job) / job.layout.context
        _add_copies(tally, "activations over PCIe", stream * blocks, rates)


def _add_offloaded_parameters(tally: Tally, job: Job, rates: Rates) -> None:
    """Shards of parameters that lie on the host come up for forward and again for backward.

    FSDP2 copies the shard as it is stored and casts it on the GPU, ZeRO-3 keeps 16-bit ones.
    Source: torch.distributed.fsdp, _fsdp_param.py, all_gather_inputs; Rajbhandari et al. 2021, ZeRO-Infinity, section 5
    """
    layout = job.layout
    if layout.offload_parameters:
        element = compute_bytes(job) if layout.is_zero else DTYPE_BYTES[job.precision.weights]
        ranks = layout.tensor * layout.pipeline * layout.state_ranks
        _add_copies(tally, "parameters over PCIe", element * job.shape.parameters / ranks, rates)


def _add_copies(tally: Tally, what: str, moved_bytes: float, rates: Rates) -> None:
    """Copies between host and GPU in forward and as many in backward, beside compute: what takes longer is waited for."""
    if rates.pcie_bytes_per_second is None:
        return
    phases: tuple[TimePhase, ...] = ("forward", "backward")
    for phase in phases:
        busy = tally.busy(phase).likely
        over = (max(0.0, seconds - busy) for seconds in seconds_at(moved_bytes, rates.pcie_bytes_per_second))
        tally.add(what, phase, Bounds(*over), "pcie")


def _add_optimizer_step(tally: Tally, job: Job, rates: Rates) -> None:
    pcie, host = offloaded_bytes(job)
    if pcie:
        link = rates.pcie_bytes_per_second or rates.memory_bytes_per_second
        tally.add("optimizer on the host", "optimizer_step", seconds_at(host * job.machine.gpus, achieved("host_adam")), "memory")
        flop = orthogonalization_flop(job) * job.machine.gpus
        tally.add("orthogonalization on the host", "optimizer_step", seconds_at(flop, achieved("host_matrix")), "compute")
        tally.add("gradients and weights over PCIe", "optimizer_step", seconds_at(pcie, link), "pcie")
        return
    tally.add("optimizer", "optimizer_step", seconds_at(step_bytes(job), rates.memory_bytes_per_second), "memory")
    tally.add("orthogonalization", "optimizer_step", seconds_at(orthogonalization_flop(job), rates.matrix_flop_per_second), "compute")
