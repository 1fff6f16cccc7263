"""Time and traffic for people and programs, by hand."""

from __future__ import annotations

from dataclasses import replace

from fullstep.job import Job
from fullstep.ledger import Answer, Run, StepPart, StepTime, Timing, Traffic
from fullstep.quantities import Bounds
from fullstep.report.json import answer_as_dict, answer_line
from fullstep.report.paper import Paper
from fullstep.report.timing_json import step_as_dict, traffic_as_dict
from fullstep.report.timing_text import timing_lines

STEP = StepTime(
    evidence="estimated", seconds=Bounds(2.1, 2.2, 2.4), tokens_per_second_per_gpu=Bounds(15_000, 15_600, 16_000),
    model_flops_utilization=Bounds(0.4, 0.41, 0.45), exposed_communication_fraction=Bounds(0, 0.04, 0.12), bound_by="compute",
    parts=(
        StepPart("feed forward", Bounds(2.1, 2.1, 2.1), "compute"), StepPart("communication not hidden", Bounds(0, 0.1, 0.3), "network"),
    ),
)  # fmt: skip
TRAFFIC = Traffic(
    evidence="estimated", inside_node_bytes=12.5e9, between_nodes_bytes=7.5e9, required_gbit_s_per_node=Bounds(150, 170, 210),
    exposed_share=0.1,
)  # fmt: skip
RUN = Run(optimizer_steps=1000, seconds=Bounds(219_600, 230_000, 252_000), evaluation_seconds=Bounds(0, 0, 0))


def lines(job: Job, answer: Answer, timing: Timing) -> str:
    return "\n".join(timing_lines(job, replace(answer, timing=timing), Paper(width=200)))


def test_what_people_read(job: Job, answer: Answer) -> None:
    several = replace(job, machine=replace(job.machine, gpus=8, nodes=2))
    text = lines(several, answer, Timing(STEP, TRAFFIC, RUN, ()))
    assert "2.1-2.4 s (likely 2.2 s) · 15,600 tokens/s per GPU · 41 % of the peak (MFU)" in text
    assert "communication not hidden 4 % (up to 12 %) · most of it arithmetic · estimated" in text
    assert "61.0-70.0 h for 1,000 steps" in text
    assert "each GPU sends 12.5 GB a step inside its node · a node sends 60.0 GB to others" in text
    assert "170 Gbit/s per node (150-210) keep it under a tenth of the step" in text


def test_inside_one_server_no_network_is_needed(job: Job, answer: Answer) -> None:
    inside = replace(TRAFFIC, between_nodes_bytes=0.0, required_gbit_s_per_node=Bounds.exact(0.0))
    assert "none between servers" in lines(job, answer, Timing(None, inside, None, ()))


def test_a_rate_that_is_not_known_says_why(job: Job, answer: Answer) -> None:
    several = replace(job, machine=replace(job.machine, gpus=8, nodes=2))
    unknown = replace(TRAFFIC, required_gbit_s_per_node=None, why_no_rate="no GPU is named")
    assert "line rate for it: no GPU is named" in lines(several, answer, Timing(None, unknown, None, ()))


def test_the_contract_s_objects() -> None:
    step, traffic = step_as_dict(STEP), traffic_as_dict(TRAFFIC)
    assert step is not None and traffic is not None
    assert step["seconds"] == {"low": 2.1, "likely": 2.2, "high": 2.4} and step["bound_by"] == "compute"
    assert [part["what"] for part in step["parts"]] == ["feed forward", "communication not hidden"]
    assert traffic["sent_bytes_per_gpu_per_step"] == {"inside_node": 12_500_000_000, "between_nodes": 7_500_000_000}
    assert traffic["required_gbit_s_per_node"]["likely"] == 170


def test_parts_that_are_null_say_why(answer: Answer) -> None:
    timed = replace(answer, timing=Timing(None, TRAFFIC, None, (("step", "no GPU"), ("run", "no data"))))
    document = answer_as_dict(timed)
    assert document["step"] is None and document["run"] is None and document["traffic"] is not None
    why = {assumption["key"]: assumption["why"] for assumption in document["assumptions"]}
    assert (why["step"], why["run"]) == ("no GPU", "no data") and "traffic" not in why
    assert '"key":"step","value":null,"why":"no GPU"' in answer_line(timed)
