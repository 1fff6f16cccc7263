"""Bytes per logit of each way to compute the loss: transformers by version, torchtune's chunks, fused kernels.

T tokens, V words, h wide. Llama-3.1-8B in bfloat16: the final norm keeps 8 h + 4 per token where head and norm train (float32 copy,
normalised copy, output; an inverse root).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.physics.memory.choices import block_kernels, loss_habit
from fullstep.physics.memory.head import HeadProfile, head_profile

T, V, h = 4096, 128_256, 4096
NORM = T * (8 * h + 4)
Make = Callable[..., Job]


def head_of(make: Make, **keys: Any) -> HeadProfile:
    job = make(batch__sequence_tokens=T, **keys)
    return head_profile(job.shape, block_kernels(job, job.shape.blocks[-1]), loss_habit(job))


def test_standard_loss_today(eight_billion: Make) -> None:
    """Forward: 2 logits + 4 float32 copy + 4 log-softmax; kept: 4; backward: 4 log-softmax + 4 + 4 gradients."""
    head = head_of(eight_billion)
    assert head.logits == 2 * T * V
    assert head.norm_saved == T * (6 * h + 4)
    assert head.profile.saved == NORM + 4 * T * V
    assert head.profile.forward_peak == NORM + 10 * T * V
    assert head.profile.backward_peak == NORM + 12 * T * V
    assert head.profile.weight_gradient == 2 * V * h + 2 * h


@pytest.mark.parametrize(("version", "per_logit"), [("4.45.0", 12), ("4.48.0", 14), ("4.50.0", 10), ("5.0.0", 10)])
def test_versions_of_transformers(eight_billion: Make, version: str, per_logit: int) -> None:
    """4.45 copies the shifted logits in float32; from 4.46 the model's own logits live on; from 4.50 labels are shifted instead."""
    head = head_of(eight_billion, step__framework_version=version, step__loss_input_dtype="float32")
    assert head.profile.forward_peak == NORM + per_logit * T * V


def test_loss_in_the_logits_own_dtype(eight_billion: Make) -> None:
    """2 logits + 2 log-softmax; backward 2 + 2 + 2."""
    head = head_of(eight_billion, step__loss_input_dtype="bfloat16")
    assert head.profile.forward_peak == NORM + 4 * T * V
    assert head.profile.backward_peak == NORM + 6 * T * V


def test_a_cap_makes_a_second_tensor_of_the_logits(eight_billion: Make) -> None:
    """Before the loss: the quotient beside the logits, the hyperbolic tangent beside the quotient, the product beside the tangent."""
    capped = head_of(eight_billion, model__name="google/gemma-2-2b")
    assert (capped.making, capped.logits) == (2 * 2 * T * 256_000, 2 * T * 256_000)
    assert head_of(eight_billion).making == 2 * T * V


def test_frozen_head_keeps_no_input(eight_billion: Make) -> None:
    """The float32 copy of the norm's input and the root stay: its scale is frozen, but the gradient passes through."""
    head = head_of(eight_billion, method__kind="lora")
    assert head.profile.weight_gradient == 0
    assert head.profile.saved == T * (4 * h + 4) + 4 * T * V


def test_inplace_loss_leaves_the_gradient_in_its_input(eight_billion: Make) -> None:
    """Logits 2, float32 copy 4 and shifted copy 4 in forward; no log-softmax."""
    head = head_of(eight_billion, step__loss="inplace")
    assert head.profile.forward_peak == NORM + 10 * T * V
    assert head.profile.output == 4 * T * V


def test_fused_loss_makes_one_chunk_of_logits(eight_billion: Make) -> None:
    """ceil(V / h) = 32 parts of 128 rows; kept are the gradients of the input and of the matrix, made in forward."""
    head = head_of(eight_billion, step__loss="fused")
    assert head.logits == 0
    assert head.profile.saved == T * (6 * h + 4) + 2 * T * h + 2 * V * h
    assert head.profile.forward_peak == head.profile.saved + 2 * T * h + 128 * V * (2 + 2 + 4)
    frozen = head_of(eight_billion, step__loss="fused", method__kind="lora")
    assert frozen.profile.saved == T * (4 * h + 4) + 2 * T * h


def test_chunked_loss_keeps_log_softmax_and_makes_gradients_chunk_by_chunk(eight_billion: Make) -> None:
    chunked, whole = head_of(eight_billion, step__loss="chunked"), head_of(eight_billion)
    assert chunked.profile.saved == NORM + 4 * T * V
    eighth_of_gradients = (2 * 4 + 2) * T * V / 8
    last = chunked.profile.backward_peak - NORM - 4 * T * V - eighth_of_gradients
    assert last == 2 * V * h + 2 * T * h + 2 * V * h  # the matrix's gradient twice (kept, one chunk's) and the input's
    assert chunked.profile.backward_peak < whole.profile.backward_peak
    compiled = head_of(eight_billion, step__loss="chunked", step__compile=True, step__loss_input_dtype="float32")
    assert compiled.profile.saved < chunked.profile.saved


def test_capped_logits_keep_one_more(eight_billion: Make) -> None:
    """gemma2: logits / cap, tanh (kept), times cap."""
    job = eight_billion(model__name="google/gemma-2-9b")
    assert job.shape.logit_softcap
    head = head_profile(job.shape, block_kernels(job, job.shape.blocks[-1]), loss_habit(job))
    logits = job.batch.tokens * job.shape.vocabulary
    assert head.profile.saved == pytest.approx((4 + 2) * logits + job.batch.tokens * (10 * job.shape.hidden + 4), rel=1e-9)


def test_the_pool_has_a_place_for_everything(eight_billion: Make) -> None:
    for loss in ("standard", "inplace", "chunked", "fused"):
        head = head_of(eight_billion, step__loss=loss)
        assert head.pool >= head.profile.forward_peak - head.norm_saved > 0
