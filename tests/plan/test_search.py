"""The search: what is kept, what is varied, what is ruled out, and the one verdict over all. Figures: see by_hand.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.errors import Fault, UnsupportedError
from fullstep.job import Job, Worksheet, complete, edit
from fullstep.ledger import Answer
from fullstep.plan.search import Plan, plan
from fullstep.plan.trial import BUDGET, Size

from .by_hand import answer_of, by_hand

KEPT_ON_THE_GPU = ["layout.offload_parameters", "layout.offload_optimizer"]
Sheet = Callable[..., Worksheet]


def rows(job: Job) -> int:
    return job.batch.micro_batch * job.batch.accumulation * job.layout.data_parallel


def by_strategy(found: Plan) -> dict[str, list[Job]]:
    table: dict[str, list[Job]] = {}
    for trial in found.options:
        table.setdefault(trial.job.layout.strategy, []).append(trial.job)
    return table


def test_state_that_is_larger_than_a_card_is_sharded(sheet: Sheet, size: Size) -> None:
    """80 GiB of state beside 79 usable: no replica; an eighth of it leaves room for everything."""
    found = plan(sheet(), size)
    assert found.verdict.answer == "one_server_sharded"
    assert "ddp" not in by_strategy(found)
    ddp = next(out for out in found.rejected if out.what == "DDP")
    assert ddp.limit == "memory" and ddp.unit == "bytes"
    assert ddp.available is not None and ddp.needed is not None and ddp.needed > ddp.available
    assert ddp.remedy is not None and ddp.remedy["layout.strategy"] == found.options[0].job.layout.strategy
    assert not ddp.changes_training


def test_a_replica_comes_first_where_it_fits(sheet: Sheet) -> None:
    found = plan(sheet(), by_hand(state_gib=30))
    assert found.verdict.answer == "one_server_replicated"
    assert found.options[0].job.layout.strategy == "ddp"
    assert found.verdict.sentence.startswith("One server is enough: 8 x H100-SXM, a whole replica on each GPU")


def test_what_the_training_is_stays(sheet: Sheet, size: Size) -> None:
    written = complete(sheet(batch={"micro_batch": 2, "accumulation": 4}))
    found = plan(sheet(batch={"micro_batch": 2, "accumulation": 4}), size)
    assert len(found.options) > 5
    for trial in found.options:
        job = trial.job
        assert rows(job) == rows(written) == 64
        assert (job.method, job.optimizer.name, job.batch.sequence_tokens, job.batch.packed) == (
            written.method, written.optimizer.name, 4096, True,
        )  # fmt: skip
        assert (job.precision.weights, job.precision.master_weights) == ("float32", False)
        assert job.optimizer.state_dtype == "float32"


def test_sharding_that_would_bring_master_weights_is_another_training(sheet: Sheet, size: Size) -> None:
    """Pure bfloat16 weights: DeepSpeed would keep float32 copies beside them, FSDP does not."""
    found = plan(sheet(precision={"weights": "bfloat16"}), size)
    assert not {"zero1", "zero2", "zero3"} & set(by_strategy(found))
    assert "fsdp" in by_strategy(found)


def test_options_run_as_they_stand_and_give_the_same_answer(sheet: Sheet, size: Size) -> None:
    found = plan(sheet(batch={"global_rows": 32}), size)
    for trial in found.options:
        assert size(complete(trial.worksheet)).memory == trial.answer.memory


@pytest.mark.parametrize(
    "layout",
    [
        {"strategy": "hsdp", "shards": 8}, {"strategy": "fsdp", "reshard_after_forward": 4},
        {"strategy": "zero1", "implementation": "megatron"},
    ],
)
def test_changes_make_the_option_of_the_worksheet_as_written(sheet: Sheet, size: Size, layout: dict[str, object]) -> None:
    """Keys that an option does without are among its changes, with None: left there, another strategy would refuse or mean them."""
    machine = {"nodes": 2, "network_gbit_s": 400}
    written = sheet(batch={"global_rows": 32}, layout=layout, machine=machine, goal={"max_nodes": 4})
    options = plan(written, size).options
    assert {None} <= {value for trial in options for value in trial.changes.values()}
    for trial in options:
        made = complete(edit(written, trial.changes))
        assert (made.layout, made.batch, made.step) == (trial.job.layout, trial.job.batch, trial.job.step)


def test_servers_are_tried_up_to_the_most_that_are_wanted(sheet: Sheet, size: Size) -> None:
    """Also where more are written."""
    found = plan(sheet(batch={"global_rows": 64}, machine={"nodes": 4, "network_gbit_s": 400}, goal={"max_nodes": 2}), size)
    assert {trial.job.machine.nodes for trial in found.options} == {1, 2}
    stays = {"fixed": ["machine.nodes"]}
    fixed = plan(sheet(batch={"global_rows": 64}, machine={"nodes": 4, "network_gbit_s": 400}, goal={"max_nodes": 2}, plan=stays), size)
    assert {trial.job.machine.nodes for trial in fixed.options} == {4}


def test_the_largest_micro_batch_that_fits(sheet: Sheet) -> None:
    """20 of state + 14 a row (10 + 4), or 10 a row with the fused loss: 75 = 79 * 0.95 less 1 of bound allows 5; of 1, 2, 4, 8 it is 4."""
    found = plan(sheet(batch={"accumulation": 8}), by_hand(state_gib=20))
    plain = [trial for trial in found.options if trial.job.layout.strategy == "ddp" and trial.job.step.activation_checkpointing == "none"]
    assert [trial.job.batch.micro_batch for trial in plain if trial.changes] == [4]
    assert plain[0].job.batch.accumulation == 2
    assert plain[0].job.step.loss == "fused"


def test_free_savers_that_are_not_needed_are_left_out(sheet: Sheet) -> None:
    best = plan(sheet(), by_hand(state_gib=20)).options[0]
    assert best.job.layout.strategy == "ddp"
    assert set(best.changes) - {key for key, value in best.changes.items() if value is None} == {"layout.strategy"}


def test_more_recomputation_never_comes_before_less_over_nvlink(sheet: Sheet, size: Size) -> None:
    order = {"none": 0, "selective": 1, "full": 2}
    found = plan(sheet(batch={"accumulation": 8}), size)
    levels = [order[str(trial.job.step.activation_checkpointing)] for trial in found.options if trial.fits]
    assert levels == sorted(levels)


def test_over_pcie_less_traffic_comes_first(sheet: Sheet) -> None:
    """A replica with full recomputation (30 + 1) before sharded state without (30 / 8 + 10) where GPUs talk through the host."""
    machine = {"gpu": "RTX4090", "gpu_memory_gib": 35, "link": "pcie_host"}
    found = plan(sheet(machine=machine, batch={"accumulation": 4}), by_hand(state_gib=30))
    assert found.options[0].job.layout.strategy == "ddp"
    assert found.options[0].job.step.activation_checkpointing == "full"


def test_fixed_keys_stay(sheet: Sheet, size: Size) -> None:
    fixed = ["layout.strategy", "step.activation_checkpointing", "batch.micro_batch", "step.loss"]
    found = plan(sheet(plan={"fixed": fixed}, batch={"accumulation": 4}), size)
    for trial in found.options:
        assert trial.job.layout.strategy == "fsdp"
        assert trial.job.step.activation_checkpointing == "none"
        assert trial.job.batch.micro_batch == 1
        assert trial.job.step.loss == "standard"


def test_nothing_fits_names_the_smallest_change(sheet: Sheet) -> None:
    """80 of state on one 24 GB card, 20 with LoRA, 8 with QLoRA: only the last leaves room beside 10.5 of a row."""
    fixed = [*KEPT_ON_THE_GPU, "machine.gpu"]
    found = plan(sheet(machine={"gpu": "RTX4090", "gpus": 1}, plan={"fixed": fixed}, batch={"sequence_tokens": 3072}), by_hand())
    assert found.verdict.answer == "nothing_fits"
    assert not found.options
    assert [remedy.changes_training for remedy in found.remedies] == sorted(remedy.changes_training for remedy in found.remedies)
    assert any(remedy.changes.get("method.kind") == "qlora" for remedy in found.remedies)
    assert "alters the training" in found.verdict.sentence


def test_one_gpu_with_offload_is_not_sharded(sheet: Sheet) -> None:
    """ZeRO-3 on one GPU divides nothing: it is there to keep the parameters in host memory."""
    found = plan(sheet(machine={"gpu": "RTX4090", "gpus": 1}), by_hand())
    assert found.options[0].job.layout.strategy == "zero3"
    assert found.verdict.answer == "one_server_replicated"


def test_offload_is_the_last_resort(sheet: Sheet) -> None:
    """80 of state over two 24 GB cards is 40 each: only with the parameters in host memory does a step fit."""
    found = plan(sheet(machine={"gpu": "RTX4090", "gpus": 2}), by_hand())
    assert found.options
    assert all(trial.job.layout.offload_parameters for trial in found.options)


def test_host_memory_rules_out_too(sheet: Sheet) -> None:
    found = plan(sheet(machine={"host_memory_gib": 64}), by_hand(state_gib=30, host_gib=100))
    assert found.verdict.answer == "nothing_fits"
    assert {out.limit for out in found.rejected} == {"host_memory"}


def test_tight_is_not_decided(sheet: Sheet) -> None:
    """76 needed at the likely, 77 at the high bound: below 79 usable, above 75 with the reserve."""

    def always_tight(job: Job) -> Answer:
        return answer_of(job, 66, 10, 0)

    found = plan(sheet(), always_tight)
    assert found.verdict.answer == "undecided"
    assert found.verdict.decide_by is not None and "[measured]" in found.verdict.decide_by


def test_more_nodes_only_where_they_are_allowed(sheet: Sheet) -> None:
    """1,000 of state: 125 on each of 8, 62.5 on each of 16."""
    one = plan(sheet(batch={"global_rows": 16}, plan={"fixed": KEPT_ON_THE_GPU}), by_hand(state_gib=1000))
    assert one.verdict.answer == "nothing_fits"
    two = plan(sheet(batch={"global_rows": 16}, goal={"max_nodes": 4}, plan={"fixed": KEPT_ON_THE_GPU}), by_hand(state_gib=1000))
    assert two.verdict.answer == "several_servers"
    assert two.options[0].job.machine.nodes == 2


def test_rows_that_cannot_be_divided_are_a_reason(sheet: Sheet) -> None:
    """8 rows over 16 ranks."""
    found = plan(sheet(goal={"max_nodes": 2}, plan={"fixed": KEPT_ON_THE_GPU}), by_hand(state_gib=1000))
    assert "divisibility" in {out.limit for out in found.rejected}


def test_a_refused_combination_is_a_record_not_an_exception(sheet: Sheet) -> None:
    size = by_hand(state_gib=20)

    def refuses_zero(job: Job) -> Answer:
        if job.layout.strategy.startswith("zero"):
            raise UnsupportedError(Fault("layout.strategy", "not covered", "", "Trace it."))
        return size(job)

    found = plan(sheet(), refuses_zero)
    assert found.options
    assert any(out.limit == "support" and "not covered" in out.detail for out in found.rejected)


def test_a_free_saver_that_is_refused_is_left_out(sheet: Sheet) -> None:
    size = by_hand()

    def refuses_fused_loss(job: Job) -> Answer:
        if job.step.loss == "fused":
            raise UnsupportedError(Fault("step.loss", "not covered", ""))
        return size(job)

    found = plan(sheet(batch={"accumulation": 8}), refuses_fused_loss)
    assert found.options and all(trial.job.step.loss == "standard" for trial in found.options)


def test_a_pilot_belongs_to_the_worksheet_as_written_alone(sheet: Sheet, size: Size) -> None:
    found = plan(sheet(measured={"allocated_peak_gib": 20}), size)
    assert found.as_written.job.measured == {"allocated_peak_gib": 20}
    for trial in found.options:
        if trial.changes:
            assert not trial.job.measured
            assert "allocated_peak_gib" not in trial.worksheet.section("measured")


@pytest.mark.parametrize("accumulation", [1, 12, 64])
@pytest.mark.parametrize("state", [10, 80, 500])
def test_a_search_stays_within_its_budget(sheet: Sheet, state: float, accumulation: int) -> None:
    asked = 0
    size = by_hand(state_gib=state)

    def counted(job: Job) -> Answer:
        nonlocal asked
        asked += 1
        return size(job)

    plan(sheet(batch={"accumulation": accumulation}, goal={"max_nodes": 4}), counted)
    assert asked <= BUDGET


def test_the_remedy_is_the_fewest_keys_that_matter(sheet: Sheet, size: Size) -> None:
    """A replica (80 of state) is out however much is recomputed; what would help is another layout alone."""
    ddp = next(out for out in plan(sheet(batch={"accumulation": 4}), size).rejected if out.what == "DDP")
    assert ddp.remedy is not None and set(ddp.remedy) == {"layout.strategy"}


def test_a_level_that_is_out_is_helped_by_the_next_one(sheet: Sheet) -> None:
    """72 of state: 82 with the activations is out of 79, 77 with half of them is tight, 73 with a tenth fits within 75."""
    found = plan(sheet(machine={"gpus": 1}), by_hand(state_gib=72))
    out = next(out for out in found.rejected if out.what == "one GPU, no recomputation")
    assert out.remedy == {"step.activation_checkpointing": "full"}
    assert [str(trial.job.step.activation_checkpointing) for trial in found.options if trial.job.layout.strategy == "single"] == [
        "full",
        "selective",
    ]


def test_servers_that_are_offered_come_before_an_offloaded_optimizer(sheet: Sheet) -> None:
    """1,000 of state: 62.5 on each of 16 GPUs; on 8 it is 125, so that one server would need the parameters in host memory."""
    found = plan(sheet(machine={"nodes": 2}, batch={"global_rows": 16}), by_hand(state_gib=1000))
    assert found.verdict.answer == "several_servers"
    assert found.verdict.sentence.startswith("Several servers keep the optimizer on the GPUs: 2 nodes of 8 x H100-SXM")
    offloaded = [trial.job.layout.offload_optimizer for trial in found.options if trial.fits]
    assert offloaded == sorted(offloaded) and any(offloaded)


def test_an_offload_into_unknown_host_memory_is_a_condition(sheet: Sheet) -> None:
    """300 GiB are 95 % of 315.8."""
    machine = {"gpu": "RTX4090", "gpus": 2}
    unknown = plan(sheet(machine=machine), by_hand(host_gib=300)).verdict.sentence
    assert unknown.endswith(", if each server has 316 GiB of host memory.")
    stated = plan(sheet(machine={**machine, "host_memory_gib": 512}), by_hand(host_gib=300)).verdict.sentence
    assert "host memory" not in stated


@pytest.mark.parametrize(("host_gib", "told"), [(900, False), (1900, True)])
def test_very_much_host_memory_is_a_condition_without_offload_too(sheet: Sheet, host_gib: float, told: bool) -> None:
    sentence = plan(sheet(), by_hand(state_gib=30, host_gib=host_gib)).verdict.sentence
    assert ("if each server has 2,000 GiB" in sentence) is told


def test_degrees_that_are_written_leave_fewer_data_parallel_ranks(sheet: Sheet, size: Size) -> None:
    """Eight GPUs cut in two: four ranks, among which the rows are divided."""
    found = plan(sheet(layout={"strategy": "fsdp", "tensor": 2}, batch={"global_rows": 8}), size)
    assert found.options
    for trial in found.options:
        job = trial.job
        assert (job.layout.tensor, job.layout.data_parallel) == (2, 4)
        assert job.batch.micro_batch * job.batch.accumulation * 4 == 8
