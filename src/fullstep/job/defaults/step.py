"""Defaults of the sections batch and step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.job.defaults.filler import RANK_KEYS, Filler
from fullstep.job.habits import Habits
from fullstep.job.job import Batch, Step

_PASS_KEYS = ("batch.micro_batch", *RANK_KEYS)
"""what the rows of one forward pass over all ranks hang on"""


def batch_of(filler: Filler, values: Mapping[str, Any], data_parallel: int) -> Batch:
    """The whole section; accumulation follows from global_rows where that is stated."""
    take = filler.take
    sequence = take(values, "sequence_tokens", "batch.sequence_tokens", 2048, "a common length")
    rows = take(values, "micro_batch", "batch.micro_batch", 1, "one row at a time")
    packed = take(values, "packed", "batch.packed", True, "rows are filled")
    if not packed:
        useful = take(values, "mean_sample_tokens", "batch.mean_sample_tokens", sequence, "padding is not stated")
    elif "examples" in filler.worksheet.section("data"):
        useful = take(values, "mean_sample_tokens", "batch.mean_sample_tokens", sequence, "each example of data.examples fills a row")
    else:
        useful = values.get("mean_sample_tokens", sequence)
    if useful > sequence:
        found, allowed = f"{useful} in rows of {sequence} tokens", f"at most batch.sequence_tokens ({sequence})"
        filler.fault("batch.mean_sample_tokens", found, allowed, beside=("batch.sequence_tokens",))
    return Batch(
        sequence_tokens=sequence,
        micro_batch=rows,
        accumulation=_accumulation(filler, values, rows, data_parallel),
        packed=packed,
        mean_sample_tokens=useful,
    )


def _accumulation(filler: Filler, values: Mapping[str, Any], rows: int, data_parallel: int) -> int:
    wanted = values.get("global_rows")
    if wanted is None:
        return int(filler.take(values, "accumulation", "batch.accumulation", 1, "no accumulation"))
    pass_rows = rows * data_parallel
    if wanted % pass_rows:
        below, above = wanted // pass_rows * pass_rows, -(-wanted // pass_rows) * pass_rows
        near = f"{below} or {above}" if below else f"{above}"
        text = f"{wanted} rows do not divide by {rows} rows * {data_parallel} data-parallel ranks"
        remedy = f"Nearest: {near}. Or change batch.micro_batch."
        filler.fault("batch.global_rows", text, f"a multiple of {pass_rows}", remedy, _PASS_KEYS)
        return 1
    needed: int = wanted // pass_rows
    stated = values.get("accumulation")
    if stated is None:
        filler.take(values, "accumulation", "batch.accumulation", needed, "follows from batch.global_rows")
    elif stated != needed:
        text = f"{stated}, but batch.global_rows = {wanted} needs {needed}"
        remedy = f"Or batch.global_rows = {stated * pass_rows}; one of the two keys is enough."
        filler.fault("batch.accumulation", text, f"{needed}", remedy, _PASS_KEYS)
    return needed


def settle_framework(filler: Filler, values: Mapping[str, Any]) -> None:
    """Settles the training framework, which other defaults hang on."""
    filler.framework = filler.take(values, "framework", "step.framework", "transformers", "the most used")


def step_of(filler: Filler, values: Mapping[str, Any], habits: Habits) -> Step:
    """The whole section."""
    take = filler.take
    framework: Any = filler.framework
    if "framework_version" not in values:
        take(values, "framework_version", "step.framework_version", habits.version, "newest known")
    return Step(
        activation_checkpointing=take(values, "activation_checkpointing", "step.activation_checkpointing", "none", "off by default"),
        attention=take(values, "attention", "step.attention", "sdpa", "default of transformers 5 and torch"),
        loss=take(values, "loss", "step.loss", "standard", f"as {framework} does it"),
        activation_offload=take(values, "activation_offload", "step.activation_offload", False, "off unless asked for"),
        compile=take(values, "compile", "step.compile", False, "off unless asked for"),
        framework=framework,
        framework_version=habits.version,
        loss_input_dtype=_habit(filler, values, "loss_input_dtype", "step.loss_input_dtype", habits),
        keeps_outputs=_habit(filler, values, "keeps_outputs", "step.keeps_outputs", habits),
        gradients_cleared=_habit(filler, values, "gradients_cleared", "step.gradients_cleared", habits),
        expandable_segments=take(values, "expandable_segments", "step.expandable_segments", False, "default of torch's allocator"),
    )


def _habit(filler: Filler, values: Mapping[str, Any], name: str, dotted: str, habits: Habits) -> Any:
    if name in values:
        return values[name]
    return filler.take(values, name, dotted, getattr(habits, name), habits.reasons[name])
