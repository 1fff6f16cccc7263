"""What attention keeps: kernels, masks, grouped and latent heads, by hand. One row of ten tokens; 16-bit activations."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.models import Block, shape_from_config
from fullstep.physics.memory.attention import Parts, attention, ring_bytes
from fullstep.physics.memory.kernels import Kernels
from fullstep.physics.memory.tape import Profile, Tape

TOKENS, HIDDEN, HEADS, GROUPS, DIM = 10, 64, 4, 2, 16
LLAMA = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS, "vocab_size": 256,
}  # fmt: skip


def block_of(config: dict[str, Any]) -> Block:
    return shape_from_config(config).blocks[0]


def kept(kernels: Kernels, block: Block) -> float:
    return played(kernels, block).saved


def played(kernels: Kernels, block: Block) -> Profile:
    tape = Tape(kernels.tokens * HIDDEN * kernels.residual)
    parts = Parts(block, {linear.role: linear for linear in block.linears}, {norm.place: norm for norm in block.norms})
    attention(tape, kernels, 0, parts)
    return tape.play()


@pytest.fixture
def frozen(kernels: Kernels) -> Kernels:
    """No weight trains: what is left is the attention's own."""
    return kernels._replace(trains_weights=False)


def test_flash_keeps_queries_keys_values_output_and_one_number_per_row(frozen: Kernels) -> None:
    expected = TOKENS * (2 * HEADS * DIM * 2 + 2 * GROUPS * DIM * 2 + 4 * HEADS)
    assert kept(frozen, block_of(LLAMA)) == expected


def test_efficient_attention_copies_keys_to_all_heads_and_keeps_a_mask(frozen: Kernels) -> None:
    masked = frozen._replace(attention="efficient", masked=True, repeats_keys=True)
    expected = TOKENS * (4 * HEADS * DIM * 2 + 4 * HEADS) + TOKENS * TOKENS * 2
    assert kept(masked, block_of(LLAMA)) == expected


@pytest.mark.parametrize("kernel", ["efficient", "eager"])
def test_keys_of_a_single_head_are_repeated_as_a_view(frozen: Kernels, kernel: Any) -> None:
    """repeat_kv expands and reshapes: of one head no copy is made."""
    kernels = frozen._replace(attention=kernel, repeats_keys=True)
    per_head = TOKENS * 2 * DIM * 2  # a key and a value of 16 bits
    assert kept(kernels, block_of(LLAMA)) - kept(kernels, block_of(LLAMA | {"num_key_value_heads": 1})) == (HEADS - 1) * per_head


def test_two_rows_have_two_masks(frozen: Kernels) -> None:
    masked = frozen._replace(attention="efficient", masked=True, repeats_keys=True)
    assert kept(masked._replace(rows=2), block_of(LLAMA)) == 2 * kept(masked, block_of(LLAMA))


def test_eager_keeps_float32_shares_and_their_copy(frozen: Kernels) -> None:
    """Queries, repeated keys and values; softmax in float32 (4) and its 16-bit copy (2) of every pair of tokens and head."""
    eager = frozen._replace(attention="eager", repeats_keys=True)
    expected = 3 * TOKENS * HEADS * DIM * 2 + HEADS * TOKENS**2 * (4 + 2)
    assert kept(eager, block_of(LLAMA)) == expected


def test_torchs_own_math_works_in_float32(frozen: Kernels) -> None:
    """Kept: scaled queries and keys, values, and the softmax of every pair of tokens and head, 4 bytes each."""
    math = frozen._replace(attention="math", repeats_keys=True)
    expected = 4 * TOKENS * (HEADS + 1 + 1) * DIM + 4 * HEADS * TOKENS**2
    single = block_of(LLAMA | {"num_key_value_heads": 1})
    assert kept(math, single) == expected
    spread = 4 * TOKENS * 2 * (HEADS - 1) * DIM  # of two rows a product over all heads has to copy the one of keys and of values
    assert kept(math._replace(rows=2), single) == 2 * (expected + spread)


def test_joined_heads_in_float32_are_cast_for_the_kernel(frozen: Kernels) -> None:
    """A 4-bit layer gives float32 under autocast: three 16-bit copies are kept, not the 4-byte product that they were cut from."""
    gpt2 = block_of({"model_type": "gpt2", "n_embd": HIDDEN, "n_head": HEADS, "n_layer": 1})
    wide = frozen._replace(autocast=True, residual=4, stored=4, quantized=True)
    assert kept(wide, gpt2) == TOKENS * (3 * 2 * HIDDEN + 2 * HIDDEN + 4 * HEADS)


def test_eager_names_its_scores_until_the_softmax_is_done(frozen: Kernels) -> None:
    """At the softmax: 16-bit scores, their float32 copy and the softmax, where each is 2, 4 and 4 bytes per pair of tokens and head."""
    few, many = 100, 200
    eager = frozen._replace(attention="eager", repeats_keys=True)
    peaks = [played(eager._replace(sequence_tokens=rows), block_of(LLAMA)).forward_peak_unsaved for rows in (few, many)]
    slope = (peaks[1] - 2 * peaks[0]) / (many**2 - 2 * few**2)  # what grows with the square
    assert slope == pytest.approx(HEADS * (2 + 4 + 4))


def test_capped_scores_keep_their_tanh(frozen: Kernels) -> None:
    eager = frozen._replace(attention="eager", repeats_keys=True)
    gemma = LLAMA | {"model_type": "gemma2", "head_dim": DIM}
    expected = 3 * TOKENS * HEADS * DIM * 2 + HEADS * TOKENS**2 * (2 + 4 + 2)
    assert kept(eager, block_of(gemma)) == expected


def test_sinks_in_float32_widen_the_scores_under_autocast(frozen: Kernels) -> None:
    """Scores are joined with the sinks: in the scores' dtype as a rule, in float32 beside float32 sinks."""
    eager = frozen._replace(attention="eager", repeats_keys=True, autocast=True)
    block = block_of(LLAMA | {"model_type": "gpt_oss", "head_dim": DIM, "num_local_experts": 2, "num_experts_per_tok": 1})
    more = kept(eager._replace(stored=4), block) - kept(eager._replace(stored=2), block)
    assert more == HEADS * TOKENS**2 * 4  # softmax 4 and a copy 2 instead of one softmax of 2


def test_partly_rotated_heads_copy_flashs_output(kernels: Kernels) -> None:
    """What torch.cat joins of a rotated and an unrotated part lies head by head, and flash's output too: the projection keeps a copy."""
    partly = LLAMA | {"model_type": "stablelm", "num_key_value_heads": HEADS, "partial_rotary_factor": 0.5}
    wholly = partly | {"partial_rotary_factor": 1.0}
    assert kept(kernels, block_of(partly)) - kept(kernels, block_of(wholly)) == TOKENS * HEADS * DIM * 2
    eager = kernels._replace(attention="eager")
    assert kept(eager, block_of(partly)) == kept(eager, block_of(wholly))


def test_longer_rows_square_eager_scores_and_not_flash(frozen: Kernels) -> None:
    longer = frozen._replace(sequence_tokens=10 * TOKENS)
    assert kept(longer, block_of(LLAMA)) == 10 * kept(frozen, block_of(LLAMA))
    eager = frozen._replace(attention="eager", repeats_keys=True)
    assert kept(eager._replace(sequence_tokens=10 * TOKENS), block_of(LLAMA)) > 40 * kept(eager, block_of(LLAMA))


def test_virtual_tokens_lengthen_keys_and_values(frozen: Kernels) -> None:
    """Five of them before ten: keys and values of 15 tokens, copied to all heads, and a mask of 10 x 15."""
    prefix = frozen._replace(attention="efficient", masked=True, repeats_keys=True, extra_keys=5, trains_weights=False)
    tape_kept = kept(prefix, block_of(LLAMA))
    expected = TOKENS * 2 * HEADS * DIM * 2 + 15 * 2 * HEADS * DIM * 2 + 4 * TOKENS * HEADS + TOKENS * 15 * 2
    assert tape_kept == expected


def test_unrotated_heads_stay_views_of_one_product(frozen: Kernels) -> None:
    """gpt2: query, key and value are views of c_attn's output (6 h), which is kept once; the output 2 h."""
    gpt2 = block_of({"model_type": "gpt2", "n_embd": HIDDEN, "n_head": HEADS, "n_layer": 1})
    assert kept(frozen, gpt2) == TOKENS * (6 * HIDDEN + 2 * HIDDEN + 4 * HEADS)


def test_latent_attention_expands_its_keys(frozen: Kernels) -> None:
    """Queries and keys of n + r per head, values a view of kv_b's output of n + v per head, the output of v per head.

    The compressed keys' norm keeps a float32 copy (4) of the latent and an inverse root; the compressed queries' too.
    """
    n, rope, v, latent, low = 32, 16, 24, 40, 48
    block = block_of({
        "model_type": "deepseek_v3", "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "qk_nope_head_dim": n, "qk_rope_head_dim": rope, "v_head_dim": v, "kv_lora_rank": latent, "q_lora_rank": low,
        "num_hidden_layers": 1, "first_k_dense_replace": 1,
    })  # fmt: skip
    efficient = frozen._replace(attention="efficient", repeats_keys=True)
    heads = 2 * HEADS * (n + rope) * 2 + HEADS * (n + v) * 2 + HEADS * v * 2 + 4 * HEADS
    norms = 4 * latent + 4 + 4 * low + 4
    assert kept(efficient, block) == TOKENS * (heads + norms)


def test_flash_backward_sums_queries_in_float32(frozen: Kernels) -> None:
    """With grouped keys it makes gradients of keys and values for all heads before they are summed up."""
    grouped = played(frozen, block_of(LLAMA))
    alike = played(frozen, block_of(LLAMA | {"num_key_value_heads": HEADS}))
    in_kernel = TOKENS * HEADS * DIM * 4
    saved = grouped.saved + in_kernel + 2 * TOKENS * HEADS * DIM * 2
    gradients = TOKENS * 2 * (HEADS * DIM * 2 + GROUPS * DIM * 2)  # of output, query, key and value
    assert grouped.backward_peak == saved + gradients
    assert alike.backward_peak == alike.saved + in_kernel + TOKENS * 2 * 4 * HEADS * DIM


def test_what_a_divided_row_exchanges(kernels: Kernels) -> None:
    """8 of queries, 16 of keys and values, four ranks: the examples of the docstring, and two ring buffers."""
    assert ring_bytes(kernels, 8, 16) == (0, 0)
    assert ring_bytes(kernels._replace(context=4, exchange="gather"), 8, 16) == (5 * 16 + 8 * 8, 12 * 16 + 3 * 8)
    assert ring_bytes(kernels._replace(context=4, exchange="ring"), 8, 16) == (2 * 16 + 3 * 8, 4 * 16 + 8)
    assert ring_bytes(kernels._replace(context=4, exchange="heads"), 8, 16) == (0, 0)
