"""From a worksheet to a job: every default filled in and noted, every impossible combination found, all at once."""

from __future__ import annotations

from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.job.conflicts import find_conflicts
from fullstep.job.defaults.filler import Filler
from fullstep.job.defaults.layout import data_parallel_ranks, layout_of, sharded_by, shards_of, strategy_and_implementation
from fullstep.job.defaults.machine import machine_of
from fullstep.job.defaults.method import method_of
from fullstep.job.defaults.precision import optimizer_of, precision_of
from fullstep.job.defaults.run import checkpoint_of, data_of, evaluation_of, goal_of
from fullstep.job.defaults.step import batch_of, framework_of, step_of
from fullstep.job.habits import habits_of
from fullstep.job.job import Job
from fullstep.job.shapes import shape_of
from fullstep.job.worksheet import Worksheet, raise_all
from fullstep.models import ModelShape


def complete(worksheet: Worksheet) -> Job:
    """The job that a worksheet describes.

    Raises:
        InputError: the worksheet contradicts itself, or its model or card is not there; all faults together.
        UnsupportedError: the worksheet is sound, but asks for what the formulas do not cover.
    """
    filler = Filler(worksheet)
    section = worksheet.section
    shape = _shape(filler)
    machine_keys, layout_keys, step_keys = section("machine"), section("layout"), section("step")
    framework = framework_of(filler, step_keys)
    gpus = filler.take(machine_keys, "gpus", "machine.gpus", 1, "one GPU")
    nodes = filler.take(machine_keys, "nodes", "machine.nodes", 1, "one server")
    strategy, implementation = strategy_and_implementation(filler, layout_keys, gpus, nodes, framework)
    data_parallel = data_parallel_ranks(filler, layout_keys, strategy, gpus, nodes)
    shards = shards_of(filler, layout_keys, strategy, data_parallel, gpus)
    habits = habits_of(framework, step_keys.get("framework_version"), implementation, sharded_by(strategy))
    method = method_of(filler, section("method"), shape, framework)
    full = method.kind == "full"
    precision = precision_of(filler, section("precision"), full, strategy, implementation, framework)
    optimizer = optimizer_of(filler, section("optimizer"), precision, full, strategy, implementation)
    batch = batch_of(filler, section("batch"), data_parallel)
    step = step_of(filler, step_keys, framework, habits)
    layout = layout_of(filler, layout_keys, strategy, implementation, data_parallel, shards, habits)
    machine = machine_of(filler, machine_keys, gpus, nodes)
    data = data_of(filler, section("data"))
    evaluation = evaluation_of(filler, section("evaluation"), batch.micro_batch)
    checkpoint = checkpoint_of(filler, section("checkpoint"))
    goal = goal_of(filler, section("goal"))
    find_conflicts(filler, shape, method, precision, optimizer, batch, step, layout, machine)
    raise_all(filler.faults, worksheet.origin)
    if filler.uncovered or shape is None:
        raise UnsupportedError(*filler.uncovered)
    return Job(
        shape=shape, method=method, precision=precision, optimizer=optimizer, batch=batch, step=step, layout=layout, machine=machine,
        data=data, evaluation=evaluation, checkpoint=checkpoint, goal=goal,
        measured=dict(section("measured")),
        fixed=frozenset(section("plan").get("fixed", ())),
        assumptions=tuple(filler.assumptions),
        cautions=tuple(filler.cautions),
        worksheet=worksheet,
    )  # fmt: skip


def _shape(filler: Filler) -> ModelShape | None:
    model = filler.worksheet.section("model")
    try:
        shape = shape_of(model)
    except UnsupportedError as error:
        filler.uncovered.extend(_at(filler, model, fault) for fault in error.faults)
    except InputError as error:
        filler.faults.extend(_at(filler, model, fault) for fault in error.faults)
    else:
        if shape.covers:
            filler.caution("F010", f"{shape.name}: {shape.covers} is sized, not the whole model")
        return shape
    return None


def _at(filler: Filler, model: object, fault: Fault) -> Fault:
    key = "model.config" if isinstance(model, dict) and "config" in model else "model.name"
    return Fault(f"{filler.worksheet.where(key)}: {fault.where}", fault.found, fault.allowed, fault.remedy)
