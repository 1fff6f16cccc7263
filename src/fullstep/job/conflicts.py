"""Combinations of settings that cannot be, or that do not do what one would expect."""

from __future__ import annotations

from itertools import pairwise

from fullstep.job.defaults.filler import RANK_KEYS, Filler
from fullstep.job.job import Batch, Layout, Machine, Method, Optimizer, Precision, Step
from fullstep.models import ModelShape
from fullstep.quantities import GB, GIB

_COUNTERS = ("allocated_peak_gib", "reserved_peak_gib", "device_peak_gib")
"""keys of [measured], each inside the next"""
_ROWS = ("batch.accumulation", "batch.global_rows", "batch.micro_batch", *RANK_KEYS)
"""what the accumulation hangs on"""


_MODEL = ("model.config", "model.name")
"""what the sizes of the model hang on"""


def find_conflicts(
    filler: Filler, *, shape: ModelShape | None, method: Method, precision: Precision, optimizer: Optimizer,
    batch: Batch, step: Step, layout: Layout, machine: Machine,
) -> None:  # fmt: skip
    """Adds every conflict between sections to the filler's faults and cautions."""
    _card(filler, precision, step, machine)
    _base(filler, method, step, layout)
    if optimizer.in_backward and batch.accumulation > 1:
        found = f"true with batch.accumulation = {batch.accumulation}"
        remedy = "Gradients that are freed at once cannot be accumulated."
        filler.fault("optimizer.in_backward", found, "false, or batch.accumulation = 1", remedy, _ROWS)
    if step.attention == "flash" and precision.weights == precision.compute == "float32":
        remedy = "Flash attention computes in bfloat16 or float16."
        beside = ("precision.weights", "precision.compute")
        filler.fault("step.attention", '"flash" with float32 weights and compute', "eager, sdpa", remedy, beside)
    whole = layout.strategy in ("zero1", "zero2")
    if whole and method.kind == "full" and precision.weights == "float32" and precision.compute != "float32" and not precision.autocast:
        text = f"float32 weights are computed with in float32 under {layout.strategy}, not in {precision.compute}"
        filler.caution("F012", f"{text}: precision.weights = {precision.compute} is what DeepSpeed's 16-bit modes do")
    resharded = layout.reshard_after_forward
    if type(resharded) is int and layout.shards % resharded:
        divides = layout.is_fsdp or layout.is_zero
        found = f"{resharded} with {layout.shards} shards" if divides else f"{resharded} under {layout.strategy}, which does not shard"
        allowed = "true, false or a divisor of the shards"
        filler.fault("layout.reshard_after_forward", found, allowed, beside=("layout.shards", *RANK_KEYS))
    _positions(filler, shape, batch)
    find_impossible_degrees(filler, shape, batch, step, layout)


def find_impossible_degrees(filler: Filler, shape: ModelShape | None, batch: Batch, step: Step, layout: Layout) -> None:
    """Faults of degrees by which the model or its rows cannot be divided."""
    if layout.tensor * layout.pipeline * layout.context * layout.expert == 1:
        return
    if layout.strategy == "layer_split":
        found = next(name for name in ("tensor", "pipeline", "context", "expert") if getattr(layout, name) > 1)
        remedy = "One process drives all GPUs there: use single, ddp, zero1 or fsdp beside a degree."
        filler.fault(f"layout.{found}", f'{getattr(layout, found)} with layout.strategy "layer_split"', "1", remedy, ("layout.strategy",))
    _context(filler, batch, layout)
    _stages(filler, shape, layout)
    if shape is not None:
        _heads(filler, shape, layout, step)
        _experts(filler, shape, layout)


def _divides(filler: Filler, key: str, degree: int, what: str, number: int) -> bool:
    """Whether it does; a fault that says by what it would."""
    if number % degree == 0:
        return True
    allowed = [str(size) for size in range(1, min(number, 1024) + 1) if number % size == 0]
    shown = allowed if len(allowed) <= 12 else [*allowed[:11], "..."]
    filler.fault(f"layout.{key}", f"{degree}, which does not divide the {number} {what}", ", ".join(shown), beside=_MODEL)
    return False


def _heads(filler: Filler, shape: ModelShape, layout: Layout, step: Step) -> None:
    """Every tensor rank has whole heads; so has every context rank where these exchange heads."""
    attentions = {(block.attention.heads, block.attention.key_value_heads) for block in shape.blocks}
    for heads, groups in sorted(attentions):
        fits = layout.tensor == 1 or _divides(filler, "tensor", layout.tensor, "attention heads", heads)
        fits = fits and (layout.tensor == 1 or _divides(filler, "tensor", layout.tensor, "key-value heads", groups))
        exchanges = layout.context > 1 and "deepspeed" in (layout.implementation, step.framework)
        if fits and exchanges:
            fits = _divides(filler, "context", layout.context, "attention heads of a rank, which Ulysses exchanges", heads // layout.tensor)
        if not fits:
            return


def _context(filler: Filler, batch: Batch, layout: Layout) -> None:
    if batch.sequence_tokens % layout.context:
        found = f"{layout.context}, which does not divide rows of {batch.sequence_tokens} tokens"
        allowed = "a divisor of batch.sequence_tokens"
        filler.fault("layout.context", found, allowed, "Or pad the rows.", ("batch.sequence_tokens",))


def _stages(filler: Filler, shape: ModelShape | None, layout: Layout) -> None:
    stages = layout.pipeline
    if stages == 1:
        return
    if layout.implementation == "deepspeed" and layout.strategy in ("zero2", "zero3"):
        remedy = "Its pipeline engine takes whole gradients: use zero1."
        found = f'{stages} with layout.strategy "{layout.strategy}" of DeepSpeed'
        filler.fault("layout.pipeline", found, "1", remedy, ("layout.strategy",))
    if shape is None:
        return
    layers = len(shape.layers)
    if stages > layers:
        found = f"{stages} stages for a model of {layers} layers"
        filler.fault("layout.pipeline", found, f"at most {layers}", "A stage needs a layer.", _MODEL)


def _experts(filler: Filler, shape: ModelShape, layout: Layout) -> None:
    degree = layout.expert
    if degree == 1:
        return
    counts = {block.feed_forward.experts for block in shape.blocks if block.feed_forward.experts}
    if not counts:
        found = f"{degree} for {shape.name}, which has no experts"
        filler.fault("layout.expert", found, "1", "Divide its matrices: layout.tensor.", _MODEL)
        return
    ranks = layout.data_parallel * layout.context
    if ranks % degree:
        found = f"{degree} on {layout.data_parallel} data-parallel * {layout.context} context ranks, among which experts are dealt out"
        remedy = "Use more GPUs, or smaller degrees of layout.tensor and layout.pipeline."
        filler.fault("layout.expert", found, f"a divisor of {ranks}", remedy, RANK_KEYS)
    for count in sorted(counts):
        if not _divides(filler, "expert", degree, "experts", count):
            return


def find_idle_figures(filler: Filler) -> None:
    """A share that a pilot measured says nothing without the time that it is a share of."""
    measured = filler.worksheet.section("measured")
    if "exposed_communication_fraction" in measured and "step_seconds" not in measured:
        filler.caution("F001", "measured.exposed_communication_fraction is used together with measured.step_seconds alone")


def find_impossible_figures(filler: Filler, machine: Machine) -> None:
    """Faults of a pilot: a counter above the one that it lies inside, or above all the memory of the card."""
    measured = filler.worksheet.section("measured")
    stated = [(key, measured[key]) for key in _COUNTERS if key in measured]
    for (inner, less), (outer, more) in pairwise(stated):
        if less > more:
            found = f"{less} GiB, more than measured.{outer} ({more} GiB)"
            filler.fault(f"measured.{inner}", found, f"at most measured.{outer}", "Allocated lies inside reserved, reserved inside device.")
    total_bytes = _whole_card_bytes(filler, machine)
    for key, peak_gib in stated:
        if total_bytes is not None and peak_gib * GIB > total_bytes:
            there = total_bytes / GIB
            remedy = "A step that ran cannot have held more: is machine.gpu the card of the pilot, and the figure in GiB?"
            found = f"{peak_gib} GiB on a card of {there:.2f} GiB"
            filler.fault(f"measured.{key}", found, f"at most {there:.2f}", remedy, ("machine.gpu_memory_gib",))


def _whole_card_bytes(filler: Filler, machine: Machine) -> int | None:
    """What the card has at most: the marketing size read as 2^30 where nobody published what the driver reports."""
    card = machine.card
    if card is None or card.reported_bytes is not None or filler.worksheet.stated("machine.gpu_memory_gib") is not None:
        return machine.gpu_memory_bytes
    return round(card.marketing_bytes / GB * GIB)


def _positions(filler: Filler, shape: ModelShape | None, batch: Batch) -> None:
    if shape is None or shape.maximum_positions is None or batch.sequence_tokens <= shape.maximum_positions:
        return
    config = filler.worksheet.section("model").get("config")
    if isinstance(config, dict) and shape.maximum_positions not in config.values():
        return  # the config does not say it: the number is the default of its class
    text = f"batch.sequence_tokens {batch.sequence_tokens} is beyond the {shape.maximum_positions} positions of {shape.name}"
    filler.caution("F011", text)


def _card(filler: Filler, precision: Precision, step: Step, machine: Machine) -> None:
    card = machine.card
    if card is None:
        return
    if precision.compute == "fp8" and not card.trains_fp8:
        found = f'"fp8" on {card.key}, which does not compute in fp8'
        filler.fault("precision.compute", found, "float32, bfloat16, float16", "Or use a card that does.")
    elif precision.compute == "bfloat16" and not card.trains_bf16:
        filler.caution("F003", f"{card.key} does not train bfloat16 in hardware: it runs, slowly; float16 is its format")
    if step.attention == "flash" and not card.has_flash_attention:
        filler.caution("F006", f"FlashAttention has no kernel for {card.key}: sdpa is what would run")


def _base(filler: Filler, method: Method, step: Step, layout: Layout) -> None:
    if method.is_quantized and layout.strategy == "zero3" and layout.implementation == "deepspeed":
        text = f"ZeRO-3 does not split the {method.quantization} base: it is whole on every GPU; FSDP can split 4-bit weights"
        filler.caution("F004", text)
    if method.kind == "prefix_tuning" and step.activation_checkpointing != "none":
        filler.caution("F008", "peft refuses prefix tuning together with activation checkpointing")
