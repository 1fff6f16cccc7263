"""The smallest change that makes a worksheet fit. Figures: see by_hand.py; usable are 79.1, with the reserve 75.2."""

from __future__ import annotations

from collections.abc import Callable

from fullstep.job import Job, Worksheet, complete, edit
from fullstep.ledger import Answer
from fullstep.plan.remedies import Remedy, remedies
from fullstep.plan.trial import Size, Workbench

from .by_hand import answer_of, by_hand

Sheet = Callable[..., Worksheet]


def found(worksheet: Worksheet, size: Size, most: int = 9) -> list[Remedy]:
    bench = Workbench(worksheet, size)
    assert not bench.as_written.fits
    return remedies(bench, most)


def keys(remedy: Remedy) -> set[str]:
    return {key for key, value in remedy.changes.items() if value is not None}


def test_the_loss_kernel_where_the_logits_are_too_much(sheet: Sheet) -> None:
    """64 + 10 + 4 = 78 and 1 of bound: without the 4 of logits it is 75, on the safe side."""
    helps = found(sheet(machine={"gpus": 1}), by_hand(state_gib=64))
    assert helps[0].changes == {"step.loss": "fused"}
    assert helps[0].words == "fused linear cross entropy"
    assert not helps[0].changes_training


def test_free_changes_before_costly_ones_before_other_machines(sheet: Sheet) -> None:
    helps = found(sheet(machine={"gpus": 1}), by_hand(state_gib=64))
    order = [next(iter(sorted(keys(remedy)))) for remedy in helps if not remedy.changes_training]
    assert order.index("step.loss") < order.index("step.activation_checkpointing") < order.index("machine.gpu")


def test_a_smaller_micro_batch_keeps_the_rows_of_a_step(sheet: Sheet) -> None:
    """10 of state and 14 a row: eight rows are 122, four are 66."""
    written = sheet(batch={"micro_batch": 8, "accumulation": 2})
    helps = found(written, by_hand())
    fewer = next(remedy for remedy in helps if "batch.micro_batch" in remedy.changes)
    assert fewer.changes["batch.micro_batch"] == 4
    assert fewer.changes["batch.accumulation"] == 4
    assert not fewer.changes_training


def test_sharding_where_replicas_are_too_large(sheet: Sheet) -> None:
    helps = found(sheet(layout={"strategy": "ddp"}), by_hand())
    assert not helps[0].changes_training
    assert helps[0].changes["layout.strategy"] != "ddp"


def test_more_gpus_share_the_rows_that_there_are(sheet: Sheet) -> None:
    """200 of state on one GPU; four rows a step can be shared by four GPUs (50 + 14), not by eight."""
    written = sheet(machine={"gpus": 1}, batch={"accumulation": 4})
    helps = found(written, by_hand(state_gib=200))
    more = [remedy for remedy in helps if "machine.gpus" in keys(remedy)]
    assert [(remedy.changes["machine.gpus"], remedy.changes_training) for remedy in more] == [(4, False), (8, True)]
    job = complete(edit(written, more[0].changes))
    assert job.batch.micro_batch * job.batch.accumulation * job.layout.data_parallel == 4


def test_what_alters_the_training_is_marked_and_comes_last(sheet: Sheet) -> None:
    helps = found(sheet(machine={"gpus": 1}), by_hand(state_gib=200))
    marks = [remedy.changes_training for remedy in helps]
    assert marks == sorted(marks) and marks[-1]
    altering = [remedy for remedy in helps if remedy.changes_training]
    assert {"optimizer.name", "method.kind", "batch.sequence_tokens", "machine.gpus"} >= set().union(
        *(keys(remedy) for remedy in altering)
    ) - {"layout.strategy", "batch.accumulation"}
    assert any(remedy.changes.get("method.kind") == "lora" for remedy in altering)


def test_savers_help_a_change_that_is_not_enough(sheet: Sheet) -> None:
    """On 24 GB (22.3 with the reserve) LoRA has 20 of state and 10 of activations: a tenth of them leaves it at 21 and 1 of bound."""
    written = sheet(machine={"gpus": 1, "gpu": "RTX4090"}, plan={"fixed": ["machine.gpu"]})
    lora = next(remedy for remedy in found(written, by_hand()) if remedy.changes.get("method.kind") == "lora")
    assert lora.changes["step.activation_checkpointing"] == "full"
    assert lora.words.startswith("LoRA instead of all weights, and full recomputation")


def test_fixed_keys_are_not_offered(sheet: Sheet) -> None:
    written = sheet(machine={"gpus": 1}, plan={"fixed": ["step.loss", "machine.gpu", "machine.gpus", "step.activation_checkpointing"]})
    for remedy in found(written, by_hand(state_gib=64)):
        if not remedy.changes_training:
            assert not keys(remedy) & {"step.loss", "machine.gpu", "machine.gpus", "step.activation_checkpointing"}


def test_every_remedy_does_what_it_says(sheet: Sheet) -> None:
    size = by_hand(state_gib=64)
    written = sheet(machine={"gpus": 1})
    for remedy in found(written, size):
        answer = size(complete(edit(written, remedy.changes)))
        assert answer.memory.verdict == "fits"
        assert answer.memory == remedy.answer.memory


def test_a_key_is_taken_out_only_where_it_is_stated(sheet: Sheet) -> None:
    for sections in ({}, {"layout": {"strategy": "ddp", "bucket_bytes": 10**6}}):
        written = sheet(machine={"gpus": 1} if not sections else {}, **sections)
        for remedy in found(written, by_hand(state_gib=200)):
            assert all(written.stated(key) is not None for key, value in remedy.changes.items() if value is None)


def test_more_gpus_say_how_many_rows_they_make(sheet: Sheet) -> None:
    helps = found(sheet(machine={"gpus": 1}, batch={"global_rows": 3}), by_hand(state_gib=200))
    more = next(remedy for remedy in helps if remedy.changes.get("machine.gpus") == 4)
    assert more.words.startswith("4 GPUs, state sharded over them, which makes 4 rows per optimizer step")


def test_long_rows_are_divided_among_the_gpus_of_a_node(sheet: Sheet) -> None:
    """140 GiB of activations a row: half of them fit beside the state, on two ranks that share rows, with twice the accumulation."""

    def sized(job: Job) -> Answer:
        return answer_of(job, state=0, activations=140 / job.layout.context, logits=0)

    (divided,) = [help for help in found(sheet(), sized, most=40) if "layout.context" in help.changes]
    assert divided.changes == {"layout.context": 2, "batch.accumulation": 2}
    assert divided.words == "layout.context = 2, batch.accumulation = 2" and not divided.changes_training
