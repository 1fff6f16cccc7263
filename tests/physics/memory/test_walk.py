"""The walk through a step: at which blocks a peak can lie, and what is alive at each instant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.ledger import Instant
from fullstep.physics import estimate_memory
from fullstep.physics.memory.landmarks import landmarks

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
T, V, h = 2048, 128_256, 4096
STREAM = 2 * T * h
BLOCK_KEEPS = T * 200_840
"""full fine-tuning in bfloat16 (see the blocks' tests)"""


def moments(job: Job) -> dict[str, Instant]:
    return {instant.at: instant for instant in estimate_memory(job).instants}


def test_landmarks_are_the_first_and_last_of_each_kind() -> None:
    marks, counts = landmarks((0, 1, 0, 1, 0), "none")
    assert [(mark.position, mark.kind) for mark in marks] == [(0, 0), (1, 1), (3, 1), (4, 0)]
    assert counts == ((0, False, 3), (1, False, 2))
    assert marks[-1].before == ((0, False, 2), (1, False, 2))


def test_every_nth_block_is_checkpointed_from_the_first_on() -> None:
    marks, counts = landmarks((0,) * 6, 3)
    assert counts == ((0, True, 2), (0, False, 4))
    assert [(mark.position, mark.checkpointed) for mark in marks] == [(0, True), (1, False), (3, True), (5, False)]


def test_blocks_beside_the_outermost_gather_ahead() -> None:
    marks, _ = landmarks((0,) * 6, "full", neighbours=True)
    assert [mark.position for mark in marks] == [0, 1, 4, 5]


def test_instants_of_a_step_in_their_order(eight_billion: Make) -> None:
    assert list(moments(eight_billion())) == ["forward", "loss", "backward", "optimizer_step"]
    more = ["forward", "loss", "backward", "second_forward", "optimizer_step"]
    assert list(moments(eight_billion(batch__accumulation=2))) == more


def test_loss_of_one_gpu(eight_billion: Make) -> None:
    """32 blocks' activations, the stream, the final norm's 8 h + 4 per token, 10 bytes per logit."""
    holdings = moments(eight_billion())["loss"].holdings
    assert holdings.activations == 32 * BLOCK_KEEPS + STREAM + T * (6 * h + 4)
    assert holdings.logits_and_loss == 10 * T * V + 2 * T * h
    assert (holdings.gradients, holdings.temporaries) == (0, 0)


def test_backward_says_what_it_holds_by_its_name(eight_billion: Make) -> None:
    """The worst moment is the log-softmax's gradient: three float32 tensors of the logits. The output matrix's gradient is yet to come."""
    holdings = moments(eight_billion())["backward"].holdings
    assert (holdings.gradients, holdings.temporaries) == (0, 0)
    assert holdings.logits_and_loss == 12 * T * V + 2 * T * h  # the output matrix keeps its input
    assert holdings.activations == 32 * BLOCK_KEEPS + T * (6 * h + 4)


def test_a_blocks_own_activations_are_activations_in_backward(eight_billion: Make) -> None:
    """With eager attention and no logits a block is the worst: the last, or where blocks are made again the first, with all gradients."""
    keys = {"step__loss": "fused", "step__attention": "eager"}
    saved = moments(eight_billion(**keys))["backward"]
    again = moments(eight_billion(**keys, step__activation_checkpointing="full"))["backward"]
    assert (saved.place, again.place) == ("block 31", "block 0")
    softmax, copy = 32 * T * T * 4, 32 * T * T * 2  # in float32, kept at the worst moment, and its 16-bit copy, which has gone by then
    assert saved.holdings.activations > 31 * (BLOCK_KEEPS + softmax + copy) + softmax
    assert again.holdings.activations == STREAM
    assert again.holdings.temporaries - saved.holdings.temporaries > softmax


def test_optimizer_step_holds_five_times_the_weights(eight_billion: Make) -> None:
    holdings = moments(eight_billion())["optimizer_step"].holdings
    assert (holdings.weights, holdings.gradients, holdings.optimizer_states) == (2 * PARAMETERS, 2 * PARAMETERS, 4 * PARAMETERS)
    assert holdings.temporaries == 2 * PARAMETERS  # foreach
    assert (holdings.activations, holdings.logits_and_loss) == (0, 0)


def test_full_checkpointing_keeps_one_tensor_of_the_stream_per_block(eight_billion: Make) -> None:
    holdings = moments(eight_billion(step__activation_checkpointing="full"))["loss"].holdings
    assert holdings.activations == 33 * STREAM + T * (6 * h + 4)


def test_every_second_block_is_the_mean_of_both(eight_billion: Make) -> None:
    def kept(saver: Any) -> float:
        return moments(eight_billion(step__activation_checkpointing=saver))["loss"].holdings.activations

    assert kept(2) == (kept("none") + kept("full")) / 2


def test_activation_offload_leaves_two_blocks_on_the_gpu(eight_billion: Make) -> None:
    keys = {"step__activation_checkpointing": "full", "step__activation_offload": True}
    assert moments(eight_billion(**keys))["loss"].holdings.activations == 3 * STREAM + T * (6 * h + 4)


def test_autocasts_copies_of_adapters_live_until_forward_has_ended(eight_billion: Make) -> None:
    """Rank 16 on all linears: 41,943,040 elements in float32, two bytes each besides, also where blocks are made again."""
    lora = {"method__kind": "lora", "method__targets": "all-linear", "step__activation_checkpointing": "full"}
    assert moments(eight_billion(**lora))["loss"].holdings.temporaries == 2 * 41_943_040
    assert moments(eight_billion(**lora, precision__adapters="bfloat16"))["loss"].holdings.temporaries == 0
    assert moments(eight_billion(**lora, precision__autocast=False))["loss"].holdings.temporaries == 0


def test_gradients_of_the_first_micro_batch_are_there_in_the_second(eight_billion: Make) -> None:
    found = moments(eight_billion(batch__accumulation=2))
    assert found["forward"].holdings.gradients == 0
    assert found["second_forward"].holdings.gradients == 2 * PARAMETERS


def test_gradients_that_are_cleared_late_are_there_in_the_first(eight_billion: Make) -> None:
    found = moments(eight_billion(step__gradients_cleared="before_backward"))
    assert found["forward"].holdings.gradients == 2 * PARAMETERS
    fsdp1 = {"layout__strategy": "fsdp", "layout__implementation": "fsdp1", "machine__gpus": 8}
    lets_go = moments(eight_billion(step__gradients_cleared="before_backward", **fsdp1))
    assert lets_go["forward"].holdings.gradients == 0  # as its forward begins


def test_held_outputs_cost_two_bytes_per_logit_in_backward(eight_billion: Make) -> None:
    without, with_ = (moments(eight_billion(step__keeps_outputs=held))["backward"].allocated_bytes for held in (False, True))
    assert with_ - without == 2 * T * V


def test_fsdp_has_root_unit_and_next_unit_gathered(eight_billion: Make) -> None:
    root = 2 * 128_256 * 4096 + 4096
    block = (PARAMETERS - root) // 32
    found = moments(eight_billion(layout__strategy="fsdp", machine__gpus=8))
    assert found["backward"].holdings.gathered_parameters in (2 * root + 2 * block, 2 * root + 2 * 2 * block)
    assert found["loss"].holdings.gathered_parameters == 2 * root + 2 * block  # the last block's flat buffer lives until forward has ended
    assert found["optimizer_step"].holdings.gathered_parameters == 0


def test_fsdp2_holds_the_buffer_before_while_the_next_block_is_copied_out(eight_billion: Make) -> None:
    """At the first block: the root's parameters and buffer, the block's buffer and parameters, the embedding's output."""
    root = 2 * 128_256 * 4096 + 4096
    block = (PARAMETERS - root) // 32
    keys = {"layout__strategy": "fsdp", "machine__gpus": 8, "step__activation_checkpointing": "full", "batch__sequence_tokens": 512}
    forward = moments(eight_billion(**keys))["forward"]
    assert forward.place == "gathering of block 0"
    assert forward.holdings.gathered_parameters == 2 * 2 * root + 2 * 2 * block
    assert forward.holdings.activations == 2 * 512 * h
    fsdp1 = moments(eight_billion(**keys, layout__implementation="fsdp1"))["forward"]
    assert "gathering" not in fsdp1.place


def test_fsdp2_gathers_the_root_again_for_backward(eight_billion: Make) -> None:
    """A short row's loss is small: its parameters beside the buffer they come from are more than the gradients of its logits."""
    root = 2 * 128_256 * 4096 + 4096
    backward = moments(
        eight_billion(layout__strategy="fsdp", machine__gpus=1024, step__activation_checkpointing="full", batch__sequence_tokens=64)
    )["backward"]
    assert backward.place in ("gathering of the root", "embedding", "reduction of the root")
    assert backward.holdings.gathered_parameters <= 2 * 2 * root


AUTOCAST = {"precision__weights": "float32", "precision__autocast": True}


@pytest.mark.parametrize(("keys", "element", "beside"), [({}, 2, 2), (AUTOCAST, 4, 1)])
def test_tied_gradients_are_summed_into_a_third_tensor(eight_billion: Make, keys: dict[str, Any], element: int, beside: int) -> None:
    """Real tensors of torch 2.13: the head's gradient, a transposed view, is not added to in place; autocast's float32 copy of it is.

    At the end of backward all gradients are there, and besides the embedding's own and, unless it became the sum, the head's.
    """
    tied, width, rows = "meta-llama/Llama-3.2-1B", 2048, 16
    backward = moments(eight_billion(model__name=tied, batch__sequence_tokens=rows, **keys))["backward"]
    assert backward.place == "embedding"
    assert backward.holdings.gradients == element * 1_235_814_400
    assert backward.holdings.temporaries == beside * element * V * width + element * rows * width


def test_instants_name_their_place(eight_billion: Make) -> None:
    found = moments(eight_billion())
    assert (found["loss"].place, found["optimizer_step"].place) == ("loss", "optimizer")
