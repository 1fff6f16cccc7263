"""Time, traffic and the run as lines for the terminal."""

from __future__ import annotations

from fullstep.job import Settings
from fullstep.ledger import Answer, Run, StepTime, Traffic
from fullstep.physics.network.required import EXPOSED_SHARE, LEAST_GBIT_S, MOST_GBIT_S
from fullstep.plan.deadline import deadline_words, judge_run
from fullstep.quantities import HOUR_SECONDS, Bounds
from fullstep.report.paper import Paper

_GB = 1e9
_BOUND_WORDS = {
    "compute": "arithmetic", "memory": "memory bandwidth", "launch": "launches of kernels", "pcie": "PCIe", "network": "communication",
    "bubble": "the pipeline's bubble",
}  # fmt: skip
_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
_SHOWN_SHARE = 0.005
_WHOLE_GBIT_S, _NEAR = 10.0, 1.01


def timing_lines(job: Settings, answer: Answer, paper: Paper) -> list[str]:
    """Step, run and network, each with what is known of it."""
    timing = answer.timing
    if timing is None:
        return []
    lines: list[str] = []
    if timing.step is not None:
        pilot = answer.measured.get("step_seconds")
        beside = f" · estimated {duration(pilot.estimated)}" if pilot is not None and pilot.estimated is not None else ""
        lines += paper.entry("Step", step_words(timing.step) + beside)
    if timing.run is not None:
        lines += paper.entry("Run", run_words(timing.run, job))
    if timing.traffic is not None and job.machine.gpus * job.machine.nodes > 1:
        lines += paper.entry("Network", traffic_words(timing.traffic, job))
    return lines


def step_words(step: StepTime) -> str:
    """The time of a step, and what it says of the machine."""
    words = [
        f"{duration(step.seconds)} (likely {_one(step.seconds.likely, step.seconds.high)})",
        f"{step.tokens_per_second_per_gpu.likely:,.0f} tokens/s per GPU",
    ]  # fmt: skip
    if step.seconds.low == step.seconds.high:
        words[0] = duration(step.seconds)
    if step.model_flops_utilization is not None:
        words.append(f"{_percent(step.model_flops_utilization.likely)} of the peak (MFU)")
    share = step.exposed_communication_fraction
    if share is not None and share.high > _SHOWN_SHARE:
        most = f" (up to {_percent(share.high)})" if share.high > share.likely else ""
        words.append(f"communication not hidden {_percent(share.likely)}{most}")
    if step.bound_by is not None:
        words.append(f"most of it {_BOUND_WORDS[step.bound_by]}")
    return " · ".join([*words, step.evidence])


def run_words(run: Run, job: Settings) -> str:
    """How long all steps take, and whether that is within the deadline."""
    spent = ((run.evaluation_seconds, "evaluation"), (run.checkpoint_seconds, "checkpoints"))
    parts = "".join(f", {duration(seconds)} of it {what}" for seconds, what in spent if seconds is not None and seconds.high > 0)
    missing = {"checkpoints": run.checkpoint_seconds is None, "generated tokens": bool(job.evaluation.generate_tokens)}
    left_out = [what for what, is_missing in missing.items() if is_missing]
    words = ", ".join(left_out) + (" and " if left_out else "") + "starting up"
    return f"{duration(run.seconds)} for {run.optimizer_steps:,} steps{parts}; without {words}{_deadline_words(run.seconds, job)}"


def _deadline_words(seconds: Bounds, job: Settings) -> str:
    """How the run stands to ``goal.finish_within_hours``; empty without one."""
    wanted = job.goal.finish_within_hours
    if wanted is None:
        return ""
    state = {"in_time": "ends", "perhaps": "may not end", "late": "does not end", "open": "may not end"}
    limit = wanted * HOUR_SECONDS
    return f" · {state[judge_run(seconds, limit).state]} within the {deadline_words(limit)} wanted"


def traffic_words(traffic: Traffic, job: Settings) -> str:
    """What GPUs send, and the line rate that a node needs for it."""
    sent = f"each GPU sends {gigabytes(traffic.inside_node_bytes)} a step inside its node"
    if job.machine.nodes == 1:
        return f"none between servers · {sent}"
    node = traffic.between_nodes_bytes * job.machine.gpus
    rate = traffic.required_gbit_s_per_node
    words = [sent, f"a node sends {gigabytes(node)} to others"]
    if rate is None:
        words.append(f"line rate for it: {traffic.why_no_rate}")
    else:
        words.append(f"{line_rate(rate)} keep it under {_share_words(traffic.exposed_share)} of the step")
    return " · ".join(words)


def line_rate(rate: Bounds) -> str:
    """A line rate that is needed, with its ends; what lies at an end of the search is said so.

    >>> line_rate(Bounds(150, 191, 240)), line_rate(Bounds(0.1, 0.1, 3.2)), line_rate(Bounds(3800, 4400, 100_000))
    ('191 Gbit/s per node (150-240)', 'less than 0.1 Gbit/s per node (up to 3.2)', '4,400 Gbit/s per node (3,800 to more than 100,000)')
    """
    low, likely, high = (f"{end:,.0f}" if end >= _WHOLE_GBIT_S else f"{end:,.1f}" for end in rate)
    if rate.likely <= LEAST_GBIT_S * _NEAR:
        return f"less than {LEAST_GBIT_S} Gbit/s per node" + (f" (up to {high})" if rate.high > LEAST_GBIT_S * _NEAR else "")
    most = f" to more than {high}" if rate.high >= MOST_GBIT_S else f"-{high}"
    return f"{likely} Gbit/s per node ({low}{most})"


def gigabytes(size_bytes: float) -> str:
    """A size as links are sold, in units of 10^9 bytes; small ones in megabytes.

    >>> gigabytes(60.2e9), gigabytes(1.5e6), gigabytes(0)
    ('60.2 GB', '1.5 MB', '0.0 GB')
    """
    if 0 < size_bytes < _GB / 10:
        return f"{size_bytes / 1e6:,.1f} MB"
    return f"{size_bytes / _GB:,.1f} GB"


def duration(seconds: Bounds) -> str:
    """Low to high in the unit of the high one.

    >>> duration(Bounds(5400, 6000, 7200)), duration(Bounds(0.2, 0.25, 0.3)), duration(Bounds(2, 2, 2))
    ('1.5-2.0 h', '200-300 ms', '2.0 s')
    """
    size, unit = _unit(seconds.high)
    low, high = (f"{end / size:,.{0 if unit == 'ms' else 1}f}" for end in (seconds.low, seconds.high))
    return f"{low} {unit}" if low == high else f"{low}-{high} {unit}"


def moments(seconds: float) -> str:
    """One length of time, without decimals that say nothing.

    >>> moments(1800), moments(90), moments(21_240), moments(300), moments(0.25)
    ('30 min', '90 s', '5.9 h', '5 min', '250 ms')
    """
    size, unit = _unit(seconds) if not 60 <= seconds < 120 else (1.0, "s")
    return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:,.0f} {unit}"


def _share_words(share: float) -> str:
    return "a tenth" if share == EXPOSED_SHARE else f"{100 * share:g} %"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _one(seconds: float, beside: float) -> str:
    """In the unit of what it stands beside."""
    size, unit = _unit(beside)
    return f"{seconds / size:,.{0 if unit == 'ms' else 1}f} {unit}"


def _unit(seconds: float) -> tuple[float, str]:
    return next(((size, unit) for size, unit in _UNITS if seconds >= size * (1.5 if unit in ("h", "min") else 1)), _UNITS[-1])
