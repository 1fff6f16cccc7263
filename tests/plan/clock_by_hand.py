"""A clock made by hand, beside the estimator of by_hand.py: with 3,600 steps of data, hours of the run are seconds of a step.

A step is 800 s of work divided by the GPUs: 100 on one node of 8, 50 on two, 25 on four; full recomputation adds a third, selective a
tenth. A node sends 1,000 Gbit to others, and nothing hides them: 100 s at 10 Gbit/s, 1 s at 1,000. The bounds are a tenth around the likely
value. Communication takes a tenth of the step where 1,000 / rate is a ninth of the work: at 180 Gbit/s on two nodes, 360 on four.
"""

from __future__ import annotations

from dataclasses import replace

from fullstep.job import Job
from fullstep.ledger import Answer, Run, StepTime, Timing, Traffic
from fullstep.plan.timer import Clock
from fullstep.quantities import Bounds

WORK_SECONDS = 800.0
SENT_GBIT = 1000.0
RECOMPUTED = {"none": 1.0, "selective": 1.1, "full": 4 / 3}


def clock_by_hand(speed: dict[str, float] | None = None) -> Clock:
    """The clock described above; ``speed``: of a layout strategy against the others."""

    def clock(job: Job, answer: Answer) -> Answer:
        machine = job.machine
        work = WORK_SECONDS / (machine.gpus * machine.nodes) * RECOMPUTED[str(job.step.activation_checkpointing)]
        work /= (speed or {}).get(job.layout.strategy, 1.0)
        needed = 0.0 if machine.nodes == 1 else SENT_GBIT / (work / 9)
        traffic = Traffic(
            evidence="estimated", inside_node_bytes=1e9, between_nodes_bytes=0 if machine.nodes == 1 else SENT_GBIT / 8 * 1e9,
            required_gbit_s_per_node=around(needed), exposed_share=0.1,
        )  # fmt: skip
        if machine.nodes > 1 and machine.network_gbit_s is None:
            return replace(answer, timing=Timing(None, traffic, None, (("step", "the network is not stated"), ("run", "no step"))))
        exposed = 0.0 if machine.nodes == 1 else SENT_GBIT / (machine.network_gbit_s or 1.0)
        return replace(answer, timing=timing_of(job, work, exposed, traffic))

    return clock


def timing_of(job: Job, work_seconds: float, exposed_seconds: float, traffic: Traffic) -> Timing:
    """A step of so much work and exposed communication."""
    seconds = work_seconds + exposed_seconds
    rows = job.batch.micro_batch * job.batch.accumulation * job.layout.data_parallel
    gpus = job.machine.gpus * job.machine.nodes
    step = StepTime(
        evidence="estimated", seconds=around(seconds), tokens_per_second_per_gpu=around(rows * job.batch.sequence_tokens / gpus / seconds),
        model_flops_utilization=None, exposed_communication_fraction=Bounds.exact(exposed_seconds / seconds), bound_by="compute", parts=(),
    )  # fmt: skip
    if job.data.steps is None:
        return Timing(step, traffic, None, (("run", "no data set is stated"),))
    steps = int(job.data.steps)
    run = Run(optimizer_steps=steps, seconds=around(steps * seconds), evaluation_seconds=Bounds(0, 0, 0))
    return Timing(step, traffic, run, ())


def around(value: float) -> Bounds:
    """A tenth to both sides."""
    return Bounds(0.9 * value, value, 1.1 * value)
