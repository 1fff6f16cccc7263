"""What checkpoints hold and how large they are: bytes per parameter, sizes that others published, and files that were measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.job.keys import OPTIMIZERS
from fullstep.models import bundled_models
from fullstep.physics.checkpointing import container_of, contents_of, export_bytes, resumable_bytes, weight_files, written
from fullstep.physics.checkpointing.contents import state_tensors
from fullstep.physics.checkpointing.tensors import counted, largest_elements, stored_tensors, trained_tensors
from fullstep.physics.memory.optimizer import state_elements_per_parameter
from fullstep.physics.memory.weights import trainable
from fullstep.quantities import GIB

Make = Callable[..., Job]
EIGHT_BILLION = 8_030_261_248
SEVENTY_BILLION = 70_553_706_496


def part(job: Job, what: str) -> float:
    return sum(each.size_bytes for each in written(job).parts if each.what == what)


@pytest.mark.parametrize(
    ("sections", "per_parameter"),
    [
        ({"precision": {"weights": "float32"}}, 12),
        ({"precision": {"weights": "bfloat16", "master_weights": True}}, 14),
        ({"precision": {"weights": "bfloat16"}}, 6),
        ({"precision": {"weights": "bfloat16"}, "optimizer": {"state_dtype": "float32"}}, 10),
        ({"precision": {"weights": "bfloat16"}, "optimizer": {"name": "adamw_8bit"}}, 2 + 2 * (1 + 4 / 256)),
        ({"precision": {"weights": "bfloat16"}, "optimizer": {"name": "adamw_4bit"}}, 2 + 2 * (0.5 + 4 / 128)),
        ({"precision": {"weights": "float32"}, "optimizer": {"name": "sgd"}}, 4),
        ({"precision": {"weights": "float32"}, "optimizer": {"name": "lion"}}, 8),
    ],
)
def test_bytes_per_parameter(job: Make, sections: dict[str, Any], per_parameter: float) -> None:
    """float32 with AdamW 12, with float32 copies 14, all in 16 bits 6, 16 bits with float32 moments 10."""
    assert contents_of(job(**sections)).total == pytest.approx(per_parameter * EIGHT_BILLION)


def test_torchtitan_s_8b_is_96_gb(job: Make) -> None:
    """12 bytes of 8.03e9 parameters: 96.4 GB = 89.7 GiB, and below a thousandth of container."""
    found = resumable_bytes(job(step={"framework": "torchtitan"}))
    assert found == pytest.approx(96.4e9, rel=1e-3) and found == pytest.approx(89.7 * GIB, rel=1e-3)


def test_deepspeed_s_90_and_15_gib(job: Make) -> None:
    """github.com/deepspeedai/DeepSpeed/issues/6598, Llama-3.1-8B under ZeRO-2 with offload: 90G of optimizer states, 15G of model."""
    made = job(precision={"weights": "bfloat16"}, layout={"strategy": "zero2", "offload_optimizer": True}, step={"framework": "deepspeed"})
    assert part(made, "master_weights") + part(made, "optimizer_states") == pytest.approx(90 * GIB, rel=0.005)
    assert part(made, "weights") == pytest.approx(15 * GIB, rel=0.005)
    assert resumable_bytes(made) == pytest.approx(105 * GIB, rel=0.005)


def test_mlperf_s_8b_and_70b(job: Make) -> None:
    """MLPerf Storage (mlcommons/storage): 105 and 912 "GB" of 16-bit model and float32 optimizer, which are GiB."""
    for name, gib in (("meta-llama/Llama-3.1-8B", 105), ("meta-llama/Llama-3.1-70B", 912)):
        made = job(model={"name": name}, precision={"weights": "bfloat16", "master_weights": True})
        assert contents_of(made).total == pytest.approx(gib * GIB, rel=0.01)


def test_seventy_billion(job: Make) -> None:
    """NVIDIA's nvCOMP post: 782 "GB" for 70e9 parameters of 12 bytes, GiB again."""
    made = job(model={"name": "meta-llama/Llama-3.1-70B"})
    assert contents_of(made).total == 12 * SEVENTY_BILLION
    assert contents_of(made).total * 70e9 / SEVENTY_BILLION == pytest.approx(782 * GIB, rel=0.001)


@pytest.mark.parametrize(("which", "total"), [("106", 1_270_510_559), ("27", 326_055_936 + 738_000)])
def test_distributed_checkpoints_that_were_measured(job: Make, small: dict[str, Any], which: str, total: int) -> None:
    """torch 2.13, FSDP2 in float32 on 2 ranks: 12 bytes of 105,788,160 and of 27,171,328 parameters, and 0.083 and 0.23 % more."""
    made = job(model=small[which], machine={"gpus": 2}, step={"framework": "torch"})
    assert made.shape.parameters == {"106": 105_788_160, "27": 27_171_328}[which]
    found = written(made)
    assert found.size_bytes == pytest.approx(total, rel=3e-4)
    assert found.files == 3  # two of data, .metadata


def test_a_trainer_s_folder_that_was_measured(job: Make, small: dict[str, Any]) -> None:
    """transformers 5.23, one process, 619,136 parameters: 4P + 2.2 kB, 8P + 18 kB, RNG 14.5 kB, scheduler 1.5, arguments 5.3, and more."""
    made = job(model=small["0.6"], machine={"gpus": 1})
    assert made.shape.parameters == 619_136 and container_of(made) == "trainer"
    measured = 12 * 619_136 + 2_200 + 18_000 + 14_500 + 1_500 + 5_300
    found = written(made)
    assert found.size_bytes == pytest.approx(measured, rel=0.01)
    assert found.files == 8  # model, optimizer, rng_state, scheduler, trainer_state, training_args, config, generation_config


def test_files_of_the_trainer(job: Make) -> None:
    """Seen on two processes of transformers 5.23 without shards: model, optimizer, two RNG files and five more. By shards accelerate makes
    two folders of torch.distributed.checkpoint, and the Trainer adds RNG, scheduler.pt and trainer_state.json."""
    assert written(job(machine={"gpus": 2}, layout={"strategy": "ddp"})).files == 9
    assert written(job(machine={"gpus": 2}, layout={"strategy": "fsdp"})).files == 2 * 3 + 2 + 2


def test_adapters_leave_the_base_where_it_is(job: Make) -> None:
    """Rank 16 on query and value of 32 blocks: (4096 + 4096 + 4096 + 1024) * 16 elements each, 12 bytes with the moments."""
    made = job(method={"kind": "lora", "targets": ["q_proj", "v_proj"]}, precision={}, layout={"strategy": "ddp"})
    elements = 32 * 16 * (8192 + 5120)
    assert container_of(made) == "adapter"
    assert contents_of(made).total == 12 * elements
    assert resumable_bytes(made) == pytest.approx(12 * elements, rel=0.01)
    assert counted(trained_tensors(made)) == 32 * 2 * 2


def test_deepspeed_s_own_engine_saves_the_frozen_base(job: Make) -> None:
    """88.7 GiB for an adapter of 463 MiB: github.com/dreamzero0/dreamzero/issues/90. The Trainer leaves it out for peft."""
    sections = {"method": {"kind": "lora"}, "precision": {}, "layout": {"strategy": "zero2"}}
    engine, trainer = (job(**sections, step={"framework": name}) for name in ("deepspeed", "transformers"))
    assert part(engine, "frozen_weights") == 2 * EIGHT_BILLION
    assert part(trainer, "frozen_weights") == 0


def test_stage_3_has_its_weights_in_the_float32_partitions_alone(job: Make) -> None:
    """zero_to_fp32.py puts the model together from fp32_flat_groups; the model states hold placeholders. Stages 1 and 2 hold 16 bits too,
    and the Trainer writes model.safetensors beside them."""
    sections = {"precision": {"weights": "bfloat16"}}
    three = job(**sections, layout={"strategy": "zero3"})
    two = job(**sections, layout={"strategy": "zero2"})
    assert resumable_bytes(three) == pytest.approx(12 * EIGHT_BILLION, rel=1e-3)
    assert resumable_bytes(two) == pytest.approx((14 + 2) * EIGHT_BILLION, rel=1e-3)
    assert part(two, "weights_again") == 2 * EIGHT_BILLION


def test_one_file_from_shards_holds_the_model_twice_with_the_trainer(job: Make) -> None:
    """Trainer.save_model writes model.safetensors, accelerate's save_fsdp_model pytorch_model_fsdp.bin."""
    trainer, torch = (job(checkpoint={"format": "full"}, step={"framework": name}) for name in ("transformers", "torch"))
    assert (container_of(trainer), container_of(torch)) == ("full", "full")
    assert resumable_bytes(trainer) == pytest.approx(16 * EIGHT_BILLION, rel=1e-3)
    assert resumable_bytes(torch) == pytest.approx(12 * EIGHT_BILLION, rel=1e-3)


def test_replicas_are_written_once(job: Make) -> None:
    sizes = [
        resumable_bytes(job(layout={"strategy": strategy}, machine={"gpus": 8, "nodes": 2, "gpu": "H100-SXM"}, step={"framework": "torch"}))
        for strategy in ("ddp", "hsdp", "fsdp")
    ]  # fmt: skip
    assert sizes == pytest.approx([12 * EIGHT_BILLION] * 3, rel=1e-3)


def test_many_ranks_write_many_pieces(job: Make) -> None:
    """64 ranks of 8: 291 tensors, three of each cut 64 times, a zip of 1.6 kB and 0.2 kB of metadata each: 99 MB more."""
    made = job(machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 8}, step={"framework": "torchtitan"})
    assert part(made, "container") == pytest.approx(291 * 3 * 64 * 1777, rel=0.02)


@pytest.mark.parametrize(("weights", "size", "files"), [("float32", 32.1e9, 1), ("bfloat16", 16.1e9, 1)])
def test_the_final_model_apart(job: Make, weights: str, size: float, files: int) -> None:
    made = job(precision={"weights": weights})
    assert export_bytes(made) == pytest.approx(size, rel=0.003) and weight_files(made, export_bytes(made)) == files


def test_files_of_the_final_model(job: Make) -> None:
    """70B in 16 bits, 141.1 GB: three files of at most 50 GB; of 5 GB before transformers 5, 29."""
    sections = {"model": {"name": "meta-llama/Llama-3.1-70B"}, "precision": {"weights": "bfloat16"}}
    new, old = job(**sections), job(**sections, step={"framework_version": "4.51"})
    assert weight_files(new, export_bytes(new)) == 3
    assert weight_files(old, export_bytes(old)) == 29


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_its_tensors(name: str) -> None:
    """As many full-size states as its bytes say, or factors of them; a plain step or one that is a tensor."""
    found = state_tensors(name)
    assert found.divided >= state_elements_per_parameter(name) or name == "muon"


@pytest.mark.parametrize("name", [model.name for model in bundled_models()])
def test_tensors_add_up_to_all_parameters(name: str) -> None:
    made = complete(worksheet_from_mapping({"model": {"name": name}, "machine": {"gpus": 1}}, name))
    assert sum(each.elements * each.copies for each in stored_tensors(made)) == made.shape.parameters


@pytest.mark.parametrize("kind", ["lora", "dora", "qlora", "ia3", "prefix_tuning", "bottleneck"])
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1"])
def test_tensors_of_adapters_add_up(kind: str, model: str) -> None:
    made = complete(worksheet_from_mapping({"model": {"name": model}, "method": {"kind": kind}, "machine": {"gpus": 1}}, kind))
    assert sum(each.elements * each.copies for each in trained_tensors(made)) == trainable(made).total
    assert largest_elements(trained_tensors(made)) > 0
