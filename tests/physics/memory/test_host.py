"""Host memory of a node, by hand from Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.physics import estimate_memory
from fullstep.physics.memory.host import CHECKPOINT_FILE_BYTES, PROCESS_BYTES

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
    found = eight_billion(**EIGHT, layout__loading=loading)
    assert host(found) == (8 * PROCESS_BYTES + model, "load")


def test_a_quantized_model_is_read_in_16_bits(eight_billion: Make) -> None:
    assert host(eight_billion(method__kind="qlora", precision__weights="float32"))[0] == PROCESS_BYTES + 2 * PARAMETERS


@pytest.mark.parametrize(
    ("keys", "per_parameter"),
    [
        ({"layout__strategy": "zero2", "layout__offload_optimizer": True}, 4 + 4 + 8),  # masters, gradients, both states
        ({"layout__strategy": "fsdp", "layout__offload_parameters": True}, 2 + 2 + 4),  # FSDP takes gradients and states along
    ],
)
def test_offloads_live_on_the_host(eight_billion: Make, keys: dict[str, Any], per_parameter: int) -> None:
    found = host(eight_billion(**keys, machine__gpus=8, layout__loading="meta"))
    assert found == (pytest.approx(8 * PROCESS_BYTES + per_parameter * PARAMETERS), "training")


def test_paged_states_have_their_place(eight_billion: Make) -> None:
    """bitsandbytes: the states of the norms' weights (below 100,000 elements) and all scales stay on the GPU."""
    found = host(eight_billion(optimizer__name="paged_adamw_8bit", layout__loading="meta"))
    norms = (2 * 32 + 1) * 4096
    assert found == (PROCESS_BYTES + 2 * (PARAMETERS - norms), "training")


def test_one_file_of_everything_gathers_on_rank_0(eight_billion: Make) -> None:
    found = host(eight_billion(**EIGHT, checkpoint__format="full", layout__loading="meta"))
    assert found == (8 * PROCESS_BYTES + 6 * PARAMETERS, "save")


def test_asynchronous_saving_stages_the_shards(eight_billion: Make) -> None:
    found = host(eight_billion(**EIGHT, checkpoint__asynchronous=True, layout__loading="meta"))
    assert found == (pytest.approx(8 * PROCESS_BYTES + 6 * PARAMETERS), "save")


def test_offloaded_activations(eight_billion: Make) -> None:
    job = eight_billion(
        step__activation_offload=True, step__activation_checkpointing="full", layout__loading="meta", batch__sequence_tokens=131_072
    )
    assert host(job) == (PROCESS_BYTES + 32 * 2 * 131_072 * 4096, "training")
