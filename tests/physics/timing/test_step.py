"""A step put together: parts that add up, the bubble, what is waited for, and what it says of the machine."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.traffic import step_collectives
from fullstep.physics.timing.compute import compute_parts, compute_seconds, part_seconds
from fullstep.physics.timing.flops import model_flops
from fullstep.physics.timing.optimizer import elements_here
from fullstep.physics.timing.run import evaluation_seconds, optimizer_steps, run_time
from fullstep.physics.timing.step import step_time, why_no_step_time
from fullstep.quantities import Bounds


def job(**sections: Any) -> Job:
    table = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": {"gpu": "H100-SXM", "gpus": 8}, **sections}
    return complete(worksheet_from_mapping(table))


def test_parts_add_up_to_the_step() -> None:
    step = step_time(job(batch={"accumulation": 4}))
    assert step is not None
    for end in range(3):
        assert sum(part.seconds[end] for part in step.parts) == pytest.approx(step.seconds[end])
    assert step.seconds.low <= step.seconds.likely <= step.seconds.high


def test_on_one_gpu_a_step_is_what_it_computes() -> None:
    single = job(machine={"gpu": "H200-SXM"})
    step = step_time(single)
    computed = compute_seconds(single)
    assert step is not None and computed is not None
    assert step.seconds == pytest.approx(computed)
    assert step.exposed_communication_fraction == Bounds(0, 0, 0)


def test_a_pipeline_idles_for_a_micro_batch_of_each_further_stage() -> None:
    """Four stages, eight micro-batches: (4 - 1) * (forward + backward). Narayanan et al. 2021, section 2.2.1."""
    piped = job(batch={"accumulation": 8}, layout={"strategy": "ddp", "pipeline": 4})
    parts, step = compute_parts(piped), step_time(piped)
    assert parts is not None and step is not None
    micro = part_seconds(parts, "forward") + part_seconds(parts, "backward")
    (bubble,) = (part.seconds for part in step.parts if part.bound_by == "bubble")
    assert bubble == pytest.approx([3 * end for end in micro])


def test_tokens_and_utilization_by_hand() -> None:
    """Two rows of 4,096 on each of 8 GPUs, half of each row useful: 4,096 useful tokens and half of the FLOP a GPU and step."""
    padded = job(batch={"sequence_tokens": 4096, "micro_batch": 2, "packed": False, "mean_sample_tokens": 2048})
    step = step_time(padded)
    assert step is not None and step.model_flops_utilization is not None
    assert step.tokens_per_second_per_gpu.likely == pytest.approx(4096 / step.seconds.likely)
    assert step.tokens_per_second_per_gpu.low == pytest.approx(4096 / step.seconds.high)
    assert step.model_flops_utilization.likely == pytest.approx(model_flops(padded) / 2 / 989.4e12 / step.seconds.likely, rel=0.01)


def test_what_is_not_known_is_named() -> None:
    several = job(machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 2})
    assert step_time(several) is None
    assert "machine.network_gbit_s is not stated" in why_no_step_time(several)
    nowhere = complete(worksheet_from_mapping({"model": {"name": "meta-llama/Llama-3.1-8B"}}))
    assert step_time(nowhere) is None and why_no_step_time(nowhere) == "the worksheet names no GPU"


def test_a_slow_network_is_what_most_of_the_time_goes_to() -> None:
    slow = step_time(job(machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "network_gbit_s": 10}))
    fast = step_time(job(machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "network_gbit_s": 3200, "rdma": True}))
    assert slow is not None and fast is not None
    assert slow.bound_by == "network" and slow.exposed_communication_fraction.likely > 0.9
    assert fast.bound_by == "compute" and fast.seconds.likely < slow.seconds.likely / 10


@pytest.mark.parametrize(
    ("data", "batch", "steps"),
    [
        ({"tokens": 4.0e8, "epochs": 3}, {"sequence_tokens": 4096, "global_rows": 32}, 9156),  # 1.2e9 / (32 * 4096) = 9155.3
        ({"steps": 100, "epochs": 2}, {}, 200),
        ({"examples": 1000}, {"global_rows": 32, "packed": False}, 32),  # 31.25
        ({"examples": 1000}, {"global_rows": 8, "sequence_tokens": 2048, "mean_sample_tokens": 512}, 32),  # four in a row
        ({"tokens": 1e6}, {"global_rows": 8, "packed": False, "mean_sample_tokens": 500}, 250),
    ],
)
def test_steps_of_the_data(data: dict[str, Any], batch: dict[str, Any], steps: int) -> None:
    assert optimizer_steps(job(data=data, batch=batch)) == steps


def test_without_data_there_is_no_run() -> None:
    assert run_time(job(), Bounds(1, 2, 3)) is None


def test_a_run_is_its_steps_and_evaluations() -> None:
    """100 steps, evaluated every 25: four passes of 20 rows, 2 at once: 40 forward passes of 2 rows."""
    machine = {"gpu": "H200-SXM"}
    evaluated = job(machine=machine, data={"steps": 100}, evaluation={"every_steps": 25, "rows": 20, "micro_batch": 2})
    parts = compute_parts(job(machine=machine, batch={"micro_batch": 2}))
    assert parts is not None
    forward = part_seconds(parts, "forward")
    assert evaluation_seconds(evaluated, 100) == pytest.approx([40 * end for end in forward])
    found = run_time(evaluated, Bounds(1, 2, 3))
    assert found is not None and found.optimizer_steps == 100
    assert found.seconds.likely == pytest.approx(200 + 40 * forward.likely)


def test_evaluation_gathers_what_is_sharded() -> None:
    """Each pass of 16 rows on 16 ranks sends 15/16 of 16.06 GB out of a node: 12.9 s at 0.937 of 10 Gbit/s."""
    machine = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "network_gbit_s": 10, "rdma": False}
    evaluated = job(machine=machine, layout={"strategy": "fsdp"}, evaluation={"rows": 16})
    assert evaluation_seconds(evaluated, 1).likely == pytest.approx(15 / 16 * 16.06e9 / (0.937 * 1.25e9), rel=0.1)


def test_the_best_step_is_no_shorter_than_its_communication() -> None:
    """Only one stream communicates: the low end hides compute behind it, or it behind compute."""
    slow = job(machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "network_gbit_s": 800, "rdma": True})
    step, collectives = step_time(slow), step_collectives(slow)
    assert step is not None
    best = [collective_seconds(one, fabric_of(slow)) for one in collectives]
    assert step.seconds.low >= sum(one.low for one in best if one is not None)


def test_gpus_that_take_turns_share_one_model_s_flop() -> None:
    """Layers split over eight GPUs: an eighth of the tokens, and of the utilization, of one GPU that held them all."""
    one = step_time(job(machine={"gpu": "H200-SXM"}, method={"kind": "lora"}))
    split = step_time(job(machine={"gpu": "H200-SXM", "gpus": 8}, layout={"strategy": "layer_split"}, method={"kind": "lora"}))
    assert one is not None and split is not None and one.model_flops_utilization is not None and split.model_flops_utilization is not None
    assert split.model_flops_utilization.likely == pytest.approx(one.model_flops_utilization.likely / 8, rel=0.1)


def test_elements_of_the_optimizer_are_a_rank_s_own() -> None:
    """Sharded: shards x context ranks; experts dealt out over eight ranks without sharding: an eighth of them."""
    for context in (1, 4, 8):
        assert elements_here(job(layout={"strategy": "fsdp", "context": context})) == 8_030_261_248 / 8
    moe = {"name": "mistralai/Mixtral-8x7B-v0.1"}
    dealt = complete(
        worksheet_from_mapping({"model": moe, "machine": {"gpu": "H200-SXM", "gpus": 8}, "layout": {"strategy": "ddp", "expert": 8}})
    )
    experts = 32 * 8 * 3 * 4096 * 14336
    assert elements_here(dealt) == pytest.approx(46_702_792_704 - experts * 7 / 8)
