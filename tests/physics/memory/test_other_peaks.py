"""Loading, evaluation and saving, by hand from Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.physics import estimate_memory
from fullstep.physics.memory.other_peaks import key_value_bytes_per_token

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
ROOT = 2 * 128_256 * 4096 + 4096
FSDP = {"layout__strategy": "fsdp", "machine__gpus": 8}


def test_loading_whole(eight_billion: Make) -> None:
    assert estimate_memory(eight_billion()).other_peaks.load == 2 * PARAMETERS


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


def test_saving_needs_what_is_kept_and_for_one_file_a_unit(eight_billion: Make) -> None:
    assert estimate_memory(eight_billion()).other_peaks.save == 6 * PARAMETERS
    sharded = estimate_memory(eight_billion(**FSDP, checkpoint__format="sharded")).other_peaks.save
    full = estimate_memory(eight_billion(**FSDP, checkpoint__format="full")).other_peaks.save
    assert sharded == pytest.approx(6 * PARAMETERS / 8)
    assert full == pytest.approx(6 * PARAMETERS / 8 + 2 * ROOT)
