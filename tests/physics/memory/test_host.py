"""Host memory of a node, by hand from Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.physics import estimate_memory
from fullstep.physics.checkpointing.staging import saving_host_bytes
from fullstep.physics.memory.host import CHECKPOINT_FILE_BYTES, PROCESS_BYTES
from fullstep.quantities import Bounds

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EIGHT = {"layout__strategy": "fsdp", "machine__gpus": 8}


def host(job: Job) -> tuple[float, str]:
    found = estimate_memory(job)
    return found.host_bytes, found.host_at


@pytest.mark.parametrize(
    ("loading", "model"), [("every_rank", 8 * 2 * PARAMETERS), ("rank0", 2 * PARAMETERS), ("meta", CHECKPOINT_FILE_BYTES)]
)
def test_who_holds_the_model_while_loading(eight_billion: Make, loading: str, model: int) -> None:
    found = eight_billion(**EIGHT, layout__loading=loading, step__framework="torch")
    assert host(found) == (8 * PROCESS_BYTES + model, "load")


def test_a_quantized_model_is_read_in_16_bits(eight_billion: Make) -> None:
    assert host(eight_billion(method__kind="qlora", precision__weights="float32"))[0] == PROCESS_BYTES + 2 * PARAMETERS


@pytest.mark.parametrize(
    ("keys", "per_parameter"),
    [
        (
            {"layout__strategy": "zero2", "layout__offload_optimizer": True, "step__framework": "deepspeed"},
            4 + 4 + 8,
        ),  # masters, gradients, both states
        ({"layout__strategy": "fsdp", "layout__offload_parameters": True}, 2 + 2 + 4),  # FSDP takes gradients and states along
    ],
)
def test_offloads_live_on_the_host(eight_billion: Make, keys: dict[str, Any], per_parameter: int) -> None:
    found = host(eight_billion(**keys, machine__gpus=8, layout__loading="meta"))
    assert found == (pytest.approx(8 * PROCESS_BYTES + per_parameter * PARAMETERS), "training")


def test_paged_states_have_their_place(eight_billion: Make) -> None:
    """bitsandbytes: the states of the norms' weights (below 100,000 elements) and all scales stay on the GPU. A checkpoint of shards that
    are written where they lie adds nothing."""
    found = host(eight_billion(optimizer__name="paged_adamw_8bit", layout__loading="meta", step__framework="torch"))
    norms = (2 * 32 + 1) * 4096
    assert found == (PROCESS_BYTES + 2 * (PARAMETERS - norms), "training")


def test_one_file_of_everything_gathers_on_rank_0(eight_billion: Make) -> None:
    """A loop of one's own holds model and optimizer's states together; accelerate gathers one after the other, the states are larger."""
    keys = {**EIGHT, "checkpoint__format": "full", "layout__loading": "meta"}
    assert host(eight_billion(**keys, step__framework="torch")) == (8 * PROCESS_BYTES + 6 * PARAMETERS, "save")
    assert host(eight_billion(**keys)) == (8 * PROCESS_BYTES + 4 * PARAMETERS, "save")


def test_accelerate_copies_the_whole_model_on_each_rank_under_zero(eight_billion: Make) -> None:
    """Accelerator.get_state_dict: clone_tensors_for_torch_save of the unwrapped model, on all ranks. At stage 3 there is nothing whole;
    DeepSpeed's own engine writes from the GPU."""
    keys = {"machine__gpus": 8, "layout__loading": "meta"}
    two, three = (saving_host_bytes(eight_billion(**keys, layout__strategy=strategy)).likely for strategy in ("zero2", "zero3"))
    assert (two, three) == (8 * 2 * PARAMETERS, 0)
    assert saving_host_bytes(eight_billion(**keys, layout__strategy="zero2", step__framework="deepspeed")).likely == 0


def test_accelerate_copies_shards_to_the_host(eight_billion: Make) -> None:
    """ShardedStateDictConfig(offload_to_cpu=True): the model's part of each rank, then that of the states, 4 of 6 bytes per parameter."""
    found = host(eight_billion(**EIGHT, layout__loading="meta", machine__nodes=2))
    assert found == (8 * PROCESS_BYTES + 4 * PARAMETERS / 2, "save")


def test_the_frozen_base_is_not_gathered(eight_billion: Make) -> None:
    """Rank 16 on all linears of 32 blocks: 41,943,040 elements (7 linears of 4096, 1024 and 14336), 4 bytes and two moments."""
    keys = {"method__kind": "lora", "method__targets": "all-linear", "checkpoint__format": "full", "layout__loading": "meta"}
    elements = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    whole = eight_billion(**EIGHT, **keys)
    assert saving_host_bytes(whole) == Bounds.exact(8 * elements)  # the states, after 4 bytes of weights


def test_a_whole_replica_s_file_passes_through_the_host(eight_billion: Make) -> None:
    """safetensors copies all tensors of a file to the host before it writes: 16.1 GB of 16-bit weights, of 70B at most 50 GB a file."""
    found = host(eight_billion(layout__loading="meta"))
    assert found == (PROCESS_BYTES + 2 * PARAMETERS, "save")
    large = eight_billion(model__name="meta-llama/Llama-3.1-70B", layout__strategy="ddp", machine__gpus=8)
    assert saving_host_bytes(large) == Bounds.exact(50e9)


def test_asynchronous_saving_stages_the_shards(eight_billion: Make) -> None:
    found = host(eight_billion(**EIGHT, checkpoint__asynchronous=True, layout__loading="meta"))
    assert found == (pytest.approx(8 * PROCESS_BYTES + 6 * PARAMETERS), "save")


def test_processes_that_save_take_three_times_as_much(eight_billion: Make) -> None:
    """Copy, pickle through a pipe, copy of the child with the default stager, and half a GB of interpreter; kept in shared memory, once
    and 0.3 GB. Replicas stage all of it, each for itself."""
    keys = {"checkpoint__asynchronous": True, "checkpoint__async_mode": "process", "layout__loading": "meta"}
    sharded = saving_host_bytes(eight_billion(**EIGHT, **keys))
    assert sharded == pytest.approx((6 * PARAMETERS + 8 * 0.3e9, 18 * PARAMETERS + 8 * 0.5e9, 18 * PARAMETERS + 8 * 0.5e9))
    replicas = saving_host_bytes(eight_billion(**keys, layout__strategy="ddp", machine__gpus=8))
    assert replicas.low == pytest.approx(8 * (6 * PARAMETERS + 0.3e9))
    assert host(eight_billion(**EIGHT, **keys))[0] == pytest.approx(8 * PROCESS_BYTES + sharded.high)


def test_offloaded_activations(eight_billion: Make) -> None:
    job = eight_billion(
        step__activation_offload=True, step__activation_checkpointing="full", layout__loading="meta", batch__sequence_tokens=131_072
    )
    assert host(job) == (PROCESS_BYTES + 32 * 2 * 131_072 * 4096, "training")
