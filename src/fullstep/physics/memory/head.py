"""From the last block to the loss: final norm, output matrix, cross entropy. Often the peak of the whole step."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Literal, NamedTuple

from fullstep.models import Linear, ModelShape
from fullstep.physics.memory.kernels import FLOAT32, Kernels
from fullstep.physics.memory.layers import gathered, linear, norm
from fullstep.physics.memory.tape import Profile, Tape

CHUNKS = 8
"""torchtune's CEWithChunkedOutputLoss splits the rows in eight"""


class LossHabit(NamedTuple):
    """How a framework computes the loss."""

    kernel: Literal["standard", "inplace", "chunked", "fused"]
    input_bytes: int
    """bytes per logit that the loss sees"""
    copies_shifted: bool
    """logits without the last position are copied out (transformers before 4.50); later the labels are shifted instead"""
    holds_logits: bool
    """the model's low-precision logits live on while the loss is computed (they are the model's output)"""
    trains_head: bool
    compiled: bool
    gathered_from: int = 1
    """tensor ranks whose parts of the logits are put together before the loss; 1: the loss takes this rank's part"""


class HeadProfile(NamedTuple):
    """What the head adds, in bytes; ``norm_saved`` of the profile's ``saved`` is activations, the rest belongs to the logits."""

    profile: Profile
    norm_saved: float
    logits: float
    """the model's output, which a caller may keep alive"""
    making: float
    """most of it alive before the loss begins: a cap makes a second tensor of it"""
    pool: float
    """all tensors that the loss ever needs places for, forward and backward"""


@lru_cache(maxsize=512)
def head_profile(shape: ModelShape, kernels: Kernels, habit: LossHabit) -> HeadProfile:
    """Bytes of final norm, output matrix and loss for one micro-batch; often the peak of the whole step.

    Per logit (tokens * vocabulary) with a 16-bit model and a float32 loss: forward ``2 + 4 + 4`` (logits, float32 copy, log-softmax),
    kept ``4``, backward ``4 + 4 + 4`` (log-softmax and two gradients). Older transformers: 12 (4.45) and 14 (4.46 to 4.49) in forward.
    Chunked: log-softmax kept, gradients of an eighth at a time. Fused: one chunk of rows, no logits tensor.

    Example: 4096 tokens and 128,256 words: forward ``10 * 4096 * 128,256 = 5,253,365,760`` bytes.

    Args:
        shape: width, vocabulary, final norm, cap of the logits
        kernels: of the last block
        habit: loss kernel, dtype of the loss, what is held

    Returns:
        profile, what of it is the norm's, the logits, and the pool of places that the loss ever needs [bytes]

    Source:
        transformers, loss/loss_utils.py; torchtune, modules/loss; Hsu et al. 2024, Liger Kernel (fused linear cross entropy)

    Valid:
        within 0.5 % of traces of the real classes; the head's float32 gradient under autocast is made a moment too early (up to 2 %)
    """
    tape = Tape(kernels.on_the_stream().tokens * shape.hidden * kernels.residual, recomputes=False)
    entered = norm(tape, kernels.on_the_stream(), 0, shape.final_norm) if shape.final_norm is not None else 0
    entered = gathered(tape, kernels, entered)
    norm_saved = _norm_saved(shape, kernels) if shape.final_norm is not None else 0.0
    matrix = Linear(name=shape.head_name, role="up", inputs=shape.hidden, outputs=shape.vocabulary, bias=shape.head_bias)
    head_kernels = kernels._replace(trains_weights=habit.trains_head, adapter=None, quantized=False)
    if habit.kernel == "fused":
        _fused(tape, head_kernels, entered, matrix)
        fused = tape.play()
        return HeadProfile(fused, norm_saved, 0.0, 0.0, max(fused.forward_peak, fused.backward_peak) - norm_saved)
    if habit.kernel == "chunked":
        size = _chunked(tape, head_kernels, entered, matrix, habit)
        chunked = tape.play()
        pool = max(chunked.forward_peak, chunked.backward_peak) - norm_saved
        return HeadProfile(chunked, norm_saved, size, size, pool)
    logits = linear(tape, head_kernels, entered, matrix)
    part = 0.0
    if habit.gathered_from > 1:
        part = tape.size(logits)
        logits = _whole_logits(tape, logits, habit.gathered_from)
        part += tape.size(logits)
    if shape.logit_softcap:
        size = tape.size(logits)
        logits = tape.op((tape.op((tape.op((logits,), size),), size, saves_output=True),), size)
    _whole(tape, logits, habit, habit.input_bytes / kernels.compute)
    profile = tape.play()
    beside = tape.size(logits) + (profile.output if habit.kernel == "inplace" else 0)
    pool = max(profile.forward_peak, profile.backward_peak + beside) - norm_saved
    making = tape.size(logits) * (2 if shape.logit_softcap else 1)
    return HeadProfile(profile, norm_saved, tape.size(logits), max(making, tape.size(logits) + part), pool)


def _whole_logits(tape: Tape, logits: int, ranks: int) -> int:
    """Every rank's part, gathered side by side and then copied into rows; backward cuts this rank's part out again.

    Source: transformers 5.23, colwise_gather_output; torch, distributed/tensor/placement_types.py _to_replicate_tensor.
    """
    size = tape.size(logits) * ranks
    return tape.op((logits,), size, forward_work=size)


def _norm_saved(shape: ModelShape, kernels: Kernels) -> float:
    assert shape.final_norm is not None
    kernels = kernels.on_the_stream()
    tape = Tape(kernels.tokens * shape.hidden * kernels.residual)
    norm(tape, kernels, 0, shape.final_norm)
    return tape.play().saved


def _whole(tape: Tape, logits: int, habit: LossHabit, widening: float) -> None:
    """cross_entropy(logits.float()[, shifted]): log-softmax is kept; its backward needs three tensors of the loss's dtype.

    ``inplace``: a Triton kernel writes the gradient over its input, which therefore is what stays until backward.
    """
    size = tape.size(logits)
    held = [logits] if habit.holds_logits else []
    seen = logits
    if widening != 1:
        seen = tape.op((logits,), size * widening)
        held.append(seen)
    if habit.copies_shifted:
        seen = tape.op((seen,), tape.size(seen), holds=held)
        held.append(seen)
    if habit.kernel == "inplace":
        if not habit.copies_shifted:
            tape.op((seen,), tape.size(seen), view=True)
        return
    scores = tape.op((seen,), tape.size(seen), saves_output=True, holds=held)
    tape.op((scores,), 0, holds=held)


def _chunked(tape: Tape, kernels: Kernels, source: int, matrix: Linear, habit: LossHabit) -> float:
    """Output matrix and cross entropy over CHUNKS parts of the rows, one after another; returns the bytes of all logits.

    Kept for backward: each chunk's log-softmax in the loss's dtype; compiled, the chunk's logits and one value per row. Backward
    makes the gradients of one chunk at a time (compiled: at once in the logits' own dtype), and adds each chunk's gradient of the
    matrix to that of those before it.
    """
    logits = float(kernels.tokens * matrix.outputs * kernels.compute)
    wide = logits * habit.input_bytes / kernels.compute
    trains = kernels.trains_weights
    weight_gradient = matrix.parameters * kernels.new_gradient if trains else 0
    tape.op(
        (source,), 0, saves=(source,) if trains else (), extra_saved=logits if habit.compiled else wide, trains=trains,
        forward_work=0 if habit.compiled else wide / CHUNKS + logits,
        backward_work=((0 if habit.compiled else 2 * wide) + logits) / CHUNKS + (matrix.parameters * kernels.compute if trains else 0),
        weight_gradient=weight_gradient,
    )  # fmt: skip
    return logits


def _fused(tape: Tape, kernels: Kernels, source: int, matrix: Linear) -> None:
    """Fused linear cross entropy (Liger, Hsu et al. 2024): logits of one chunk of rows at a time, gradients made in forward.

    Chunks: rows / next power of two of (rows / ceil(vocabulary / hidden)). Kept: the gradient of the input, and of the matrix if it trains.
    """
    tokens = kernels.tokens
    parts = ceil(matrix.outputs / matrix.inputs)
    chunk = 1 << (ceil(tokens / parts) - 1).bit_length()
    work = min(chunk, tokens) * matrix.outputs * (2 * kernels.compute + FLOAT32)
    weight_gradient = matrix.parameters * kernels.compute if kernels.trains_weights else 0
    given = source
    tape.op(
        (given,), 0, extra_saved=tokens * matrix.inputs * kernels.compute + weight_gradient, forward_work=work,
        weight_gradient=matrix.parameters * kernels.new_gradient if kernels.trains_weights else 0,
        backward_work=-weight_gradient,
    )  # fmt: skip
