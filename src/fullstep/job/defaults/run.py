"""Defaults of the sections data, evaluation, checkpoint and goal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.job.defaults.filler import Filler
from fullstep.job.job import Checkpoint, Data, Evaluation, Goal


def data_of(filler: Filler, values: Mapping[str, Any]) -> Data:
    """The whole section; at most one of tokens, examples and steps."""
    amounts = [name for name in ("tokens", "examples", "steps") if name in values]
    if len(amounts) > 1:
        found = " and ".join(f"data.{name}" for name in amounts)
        allowed = "one of data.tokens, data.examples, data.steps"
        filler.fault(f"data.{amounts[1]}", f"{found} together", allowed, "Keep the one that you know best.")
    if not amounts:
        filler.take(values, "tokens", "data.tokens", None, "no data set is stated: time and cost of the whole run stay open")
        epochs = values.get("epochs", 1)
    else:
        epochs = filler.take(values, "epochs", "data.epochs", 1, "the data set is passed once")
    return Data(tokens=values.get("tokens"), examples=values.get("examples"), steps=values.get("steps"), epochs=epochs)


def evaluation_of(filler: Filler, values: Mapping[str, Any], micro_batch: int) -> Evaluation:
    """The whole section; without ``every_steps`` and ``rows`` nothing is evaluated."""
    take = filler.take
    every, rows = values.get("every_steps"), values.get("rows")
    if every is None and rows is None:
        take(values, "every_steps", "evaluation.every_steps", None, "no evaluation")
        idle = [f"evaluation.{name}" for name in values]
        if idle:
            filler.caution("F001", f"{', '.join(idle)} without effect: evaluation.every_steps or evaluation.rows says that there is one")
        return Evaluation(
            every_steps=None, rows=None, micro_batch=values.get("micro_batch", micro_batch),
            keeps_logits=values.get("keeps_logits", False), generate_tokens=values.get("generate_tokens", 0),
        )  # fmt: skip
    if rows is None:
        take(values, "rows", "evaluation.rows", None, "not stated: the run's time leaves evaluation out")
    return Evaluation(
        every_steps=every,
        rows=rows,
        micro_batch=take(values, "micro_batch", "evaluation.micro_batch", micro_batch, "as batch.micro_batch"),
        keeps_logits=take(values, "keeps_logits", "evaluation.keeps_logits", False, "only the loss is kept"),
        generate_tokens=take(values, "generate_tokens", "evaluation.generate_tokens", 0, "nothing is generated"),
    )


def checkpoint_of(filler: Filler, values: Mapping[str, Any]) -> Checkpoint:
    """The whole section."""
    take = filler.take
    asynchronous = take(values, "asynchronous", "checkpoint.asynchronous", False, "training waits for the write")
    mode = values.get("async_mode", "thread")
    if asynchronous:
        mode = take(values, "async_mode", "checkpoint.async_mode", "thread", "default of torch.distributed.checkpoint")
    return Checkpoint(
        lose_at_most_minutes=take(values, "lose_at_most_minutes", "checkpoint.lose_at_most_minutes", 30, "half an hour of work at risk"),
        write_within_minutes=take(values, "write_within_minutes", "checkpoint.write_within_minutes", 5, "a sixth of the interval"),
        restore_within_minutes=take(values, "restore_within_minutes", "checkpoint.restore_within_minutes", 15, "a quarter of an hour"),
        keep=take(values, "keep", "checkpoint.keep", 2, "the newest and the one before"),
        format=take(values, "format", "checkpoint.format", "sharded", "every rank writes its part"),
        asynchronous=asynchronous,
        async_mode=mode,
    )


def goal_of(filler: Filler, values: Mapping[str, Any]) -> Goal:
    """The whole section."""
    take = filler.take
    runs = take(values, "runs", "goal.runs", 1, "one run")
    idle = values.get("idle_hours_between_runs", 0)
    if runs > 1:
        idle = take(values, "idle_hours_between_runs", "goal.idle_hours_between_runs", 0, "the machine is given back between runs")
    return Goal(
        finish_within_hours=values.get("finish_within_hours"),
        budget=values.get("budget"),
        currency=take(values, "currency", "goal.currency", "USD", "offers are priced in it"),
        max_nodes=values.get("max_nodes"),
        runs=runs,
        idle_hours_between_runs=idle,
        reserve_fraction=take(values, "reserve_fraction", "goal.reserve_fraction", 0.05, "kept free of each GPU's memory"),
    )
