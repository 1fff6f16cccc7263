"""From a worksheet to a job: every default filled in and noted, every impossible combination found, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.job.conflicts import find_conflicts, find_idle_figures, find_impossible_figures
from fullstep.job.defaults.filler import Filler
from fullstep.job.defaults.layout import data_parallel_ranks, layout_of, settle_strategy, sharded_by, shards_of
from fullstep.job.defaults.machine import machine_of
from fullstep.job.defaults.method import method_of
from fullstep.job.defaults.precision import optimizer_of, precision_of
from fullstep.job.defaults.run import checkpoint_of, data_of, evaluation_of, goal_of
from fullstep.job.defaults.step import batch_of, settle_framework, step_of
from fullstep.job.habits import habits_of, transformers_numbers
from fullstep.job.job import Job, Settings
from fullstep.job.shapes import shape_of
from fullstep.job.validation import raise_all
from fullstep.job.worksheet import Worksheet
from fullstep.models import ModelShape


def complete(worksheet: Worksheet) -> Job:
    """The job that a worksheet describes.

    Raises:
        InputError: the worksheet contradicts itself, its model or card is not there, or (UnsupportedError, where this is all) it is
            sound, but asks for what the formulas do not cover; all faults together.
    """
    filler = Filler(worksheet)
    shape = _shape(filler)
    parts = _parts(filler, shape)
    if filler.faults:
        raise_all(filler.faults + filler.uncovered, worksheet.origin)
    if filler.uncovered or shape is None:
        raise UnsupportedError(*filler.uncovered)
    return Job(shape=shape, **parts)


def settings_of(worksheet: Worksheet) -> Settings:
    """The same completion for a trace, which asks the model's own class: what the formulas alone do not cover is let through.

    Raises:
        InputError: the worksheet contradicts itself, or its model or card is not there; all faults together.
    """
    filler = Filler(worksheet)
    parts = _parts(filler, _shape(filler))
    if filler.faults:
        raise_all(filler.faults, worksheet.origin)
    return Settings(**parts)


def further_faults(worksheet: Worksheet, faulty: frozenset[str]) -> list[Fault]:
    """What else is wrong with a worksheet some of whose keys could not be read, as far as it does not hang on those.

    Args:
        worksheet: what could be read
        faulty: keys and sections that could not
    """
    filler = Filler(worksheet, faulty)
    _parts(filler, _shape(filler))
    return filler.faults + filler.uncovered


def _parts(filler: Filler, shape: ModelShape | None) -> dict[str, Any]:
    """Every section of a job but the shape, filled in; what is wrong is noted in the filler, and the parts mean nothing then."""
    worksheet = filler.worksheet
    section = worksheet.section
    machine_keys, layout_keys, step_keys = section("machine"), section("layout"), section("step")
    settle_framework(filler, step_keys)
    gpus = filler.take(machine_keys, "gpus", "machine.gpus", 1, "one GPU")
    nodes = filler.take(machine_keys, "nodes", "machine.nodes", 1, "one server")
    settle_strategy(filler, layout_keys, gpus, nodes)
    data_parallel = data_parallel_ranks(filler, layout_keys, gpus, nodes)
    shards = shards_of(filler, layout_keys, data_parallel, gpus)
    version = step_keys.get("framework_version")
    habits = habits_of(filler.framework, version, filler.implementation, sharded_by(filler.strategy))
    filler.transformers = transformers_numbers(filler.framework, habits.version)
    method = method_of(filler, section("method"), shape)
    precision = precision_of(filler, section("precision"), habits)
    optimizer = optimizer_of(filler, section("optimizer"), precision)
    batch = batch_of(filler, section("batch"), data_parallel)
    step = step_of(filler, step_keys, habits)
    layout = layout_of(filler, layout_keys, data_parallel=data_parallel, shards=shards, habits=habits)
    machine = machine_of(filler, machine_keys, gpus, nodes)
    data = filler.section("data", data_of)
    evaluation = evaluation_of(filler, section("evaluation"), batch.micro_batch)
    checkpoint = filler.section("checkpoint", checkpoint_of)
    goal = filler.section("goal", goal_of)
    find_conflicts(
        filler, shape=shape, method=method, precision=precision, optimizer=optimizer, batch=batch, step=step, layout=layout, machine=machine
    )
    find_impossible_figures(filler, machine)
    find_idle_figures(filler)
    return {
        "method": method, "precision": precision, "optimizer": optimizer, "batch": batch, "step": step, "layout": layout,
        "machine": machine, "data": data, "evaluation": evaluation, "checkpoint": checkpoint, "goal": goal,
        "measured": dict(section("measured")),
        "fixed": frozenset(section("plan").get("fixed", ())),
        "assumptions": tuple(filler.assumptions),
        "cautions": tuple(filler.cautions),
        "worksheet": worksheet,
    }  # fmt: skip


def _shape(filler: Filler) -> ModelShape | None:
    model = filler.worksheet.section("model")
    if filler.is_faulty("model.config") or ("config" not in model and filler.is_faulty("model.name")):
        return None
    try:
        shape = shape_of(model)
    except UnsupportedError as error:
        filler.uncovered.extend(_at(filler, model, fault) for fault in error.faults)
    except InputError as error:
        filler.faults.extend(_at(filler, model, fault) for fault in error.faults)
    else:
        if shape.covers:
            filler.caution("F010", f"{shape.name}: {shape.covers} is sized, not the whole model")
        if "config" in model:
            filler.assumptions += shape.sizes_left_out
        return shape
    return None


def _at(filler: Filler, model: Mapping[str, Any], fault: Fault) -> Fault:
    """The fault of a model at its place in the worksheet."""
    key = "model.config" if "config" in model else "model.name"
    inside = fault.where.removeprefix("model config: ").removeprefix("model.name")
    where = filler.worksheet.where(key)
    return Fault(f"{where}: {inside}" if inside else where, fault.found, fault.allowed, fault.remedy)
