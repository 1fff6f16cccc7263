"""Loading, evaluation and saving, by hand from Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.physics import estimate_memory
from fullstep.physics.memory.broadcast import broadcast_bytes
from fullstep.physics.memory.other_peaks import key_value_bytes_per_token

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
ROOT = 2 * EMBEDDING + 4096
WORKSPACES = 2 * (4096 * 2 + 16 * 8) * 1024
"""of cuBLAS: one handle in forward, one in backward, at torch's default :4096:2:16:8"""
FSDP = {"layout__strategy": "fsdp", "machine__gpus": 8}


def test_loading_whole(eight_billion: Make) -> None:
    assert estimate_memory(eight_billion()).other_peaks.load == 2 * PARAMETERS


def test_loading_under_ddp_makes_its_buckets(eight_billion: Make) -> None:
    """As large as the gradients. With adapters, whose buckets are small, the values of the first rank come in pieces, two at a time."""
    ddp = {"layout__strategy": "ddp", "machine__gpus": 4}
    assert estimate_memory(eight_billion(**ddp)).other_peaks.load == 4 * PARAMETERS
    job = eight_billion(**ddp, method__kind="lora")
    found = estimate_memory(job)
    assert found.other_peaks.load == found.instants[0].holdings.weights + broadcast_bytes(job)


def test_loading_4_bit_packs_one_matrix_at_a_time(eight_billion: Make) -> None:
    found = estimate_memory(eight_billion(method__kind="qlora"))
    weights = found.instants[0].holdings.weights
    assert found.other_peaks.load == weights + 2 * 4096 * 14336


def test_loading_shards_and_the_unit_that_is_being_divided(eight_billion: Make) -> None:
    assert estimate_memory(eight_billion(**FSDP)).other_peaks.load == 2 * PARAMETERS / 8 + 2 * ROOT
    script = eight_billion(**FSDP, step__framework="torch", layout__loading="every_rank")
    assert estimate_memory(script).other_peaks.load == 2 * PARAMETERS


def test_no_evaluation_no_peak(eight_billion: Make) -> None:
    assert estimate_memory(eight_billion()).other_peaks.evaluation is None


def test_evaluation_may_keep_the_logits_of_all_rows(eight_billion: Make) -> None:
    def peak(*, keeps: bool) -> float:
        job = eight_billion(evaluation__rows=64, evaluation__keeps_logits=keeps, layout__strategy="ddp", machine__gpus=4)
        found = estimate_memory(job).other_peaks.evaluation
        assert found is not None
        return found

    assert peak(keeps=True) - peak(keeps=False) == 4 * (64 / 4) * 2048 * 128_256


def test_generation_keeps_keys_and_values(eight_billion: Make) -> None:
    """2 x 1024 per block and token in 16 bits: 131,072 bytes over 32 blocks, a figure that is widely quoted for this model."""
    assert key_value_bytes_per_token(eight_billion()) == 131_072
    without, with_ = (
        estimate_memory(eight_billion(evaluation__rows=8, evaluation__generate_tokens=tokens)).other_peaks.evaluation or 0.0
        for tokens in (0, 100)
    )
    assert with_ - without == 131_072 * (2048 + 100)


def test_saving_needs_what_is_kept(eight_billion: Make) -> None:
    """Parts go to the host where they lie, staged or one tensor at a time: nothing more on the GPU."""
    assert estimate_memory(eight_billion()).other_peaks.save == 6 * PARAMETERS + WORKSPACES
    for keys in ({}, {"checkpoint__asynchronous": True}):
        assert estimate_memory(eight_billion(**FSDP, **keys)).other_peaks.save == pytest.approx(6 * PARAMETERS / 8 + WORKSPACES)


def test_buckets_of_ddp_stay_between_steps(eight_billion: Make) -> None:
    """As large as the gradients, which are copied into them (gradient_as_bucket_view is False by default)."""
    saved = estimate_memory(eight_billion(layout__strategy="ddp", machine__gpus=4)).other_peaks.save
    assert saved == pytest.approx(6 * PARAMETERS + 2 * PARAMETERS + WORKSPACES)


@pytest.mark.parametrize(("implementation", "kept", "more"), [("fsdp2", 12, EMBEDDING), ("fsdp1", 16, ROOT)])
def test_one_file_from_shards_is_put_together(eight_billion: Make, implementation: str, kept: int, more: int) -> None:
    """In the stored dtype, float32 here, though steps gather bfloat16: FSDP2 one tensor at a time, the embedding; FSDP1 a unit, the root,
    beside gradients that it keeps until the next forward."""
    keys = {**FSDP, "checkpoint__format": "full", "layout__implementation": implementation, "precision__weights": "float32"}
    assert estimate_memory(eight_billion(**keys)).other_peaks.save == pytest.approx(kept * PARAMETERS / 8 + 4 * more + WORKSPACES)


def test_one_file_of_adapters_from_shards(eight_billion: Make) -> None:
    """FSDP2 leaves the frozen base alone (ignore_frozen_params): the largest adapter matrix is 16 x 14,336 float32 numbers."""
    keys = {**FSDP, "method__kind": "lora", "method__targets": "all-linear"}
    full, sharded = (estimate_memory(eight_billion(**keys, checkpoint__format=each)).other_peaks.save for each in ("full", "sharded"))
    assert full is not None and sharded is not None and full - sharded == pytest.approx(4 * 16 * 14_336)
