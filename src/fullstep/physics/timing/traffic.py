"""Bytes that the operations between matrix products read and write, and how many kernels they are.

Every count follows from the code of the class: an elementwise kernel reads its inputs and writes its output once. ``r2 w4`` below means:
reads two bytes and writes four, per element. A fused kernel (Triton, torch.compile, Transformer Engine) reads and writes only at its ends.
"""

from __future__ import annotations

from typing import NamedTuple

from fullstep.models import Norm
from fullstep.physics.memory.kernels import FLOAT32


class Traffic(NamedTuple):
    """Of one micro-batch: bytes read plus written, and kernels."""

    forward_bytes: float = 0.0
    backward_bytes: float = 0.0
    forward_launches: float = 0.0
    backward_launches: float = 0.0

    def plus(self, other: Traffic, times: float = 1.0) -> Traffic:
        """The sum with ``times`` such others."""
        return Traffic(*(mine + theirs * times for mine, theirs in zip(self, other, strict=True)))


def norm_traffic(shape: Norm, elements: float, size: int, *, fused: bool, trains: bool) -> Traffic:
    """A norm over ``elements`` of ``size`` bytes.

    Step by step (16 bits): to float32 r2 w4, square r4 w4, mean r4, scale r4 w4, back r4 w2, weight r2 w2: 36 bytes forward in 8 kernels.
    Backward runs over the same steps with two factors each: 72, and 8 for the weight's gradient. One kernel: r w forward, r r w backward.

    Args:
        shape: kind of the norm
        elements: of its input
        size: bytes of one
        fused: one kernel
        trains: its weight has a gradient

    Returns:
        bytes and kernels

    Source:
        transformers, LlamaRMSNorm; torch, native_layer_norm

    >>> norm_traffic(Norm(place="query", kind="rms", width=8, parameters=8), 1, 2, fused=False, trains=True)[:2]
    (36, 80)
    """
    weight = 4 * size if trains else 0
    if fused or shape.kind == "layer":
        return Traffic(2 * size * elements, (3 * size + weight / 4) * elements, 1, 2)
    if size == FLOAT32:
        return Traffic(28 * elements, (64 + weight) * elements, 6, 12)
    return Traffic(36 * elements, (72 + weight) * elements, 8, 14)


def rotary_traffic(elements: float, size: int, *, fused: bool) -> Traffic:
    """Rotation of queries and keys: ``x * cos + rotate_half(x) * sin``.

    Written out: times cos r w, half negated r w, joined r w, times sin r w, sum r r w: 10 passes in 5 kernels for each of the two; backward
    12 in 6. One kernel: r w.

    Source:
        transformers, apply_rotary_pos_emb
    """
    if fused:
        return Traffic(2 * size * elements, 2 * size * elements, 2, 2)
    return Traffic(10 * size * elements, 12 * size * elements, 10, 12)


def activation_traffic(elements: float, size: int, *, gated: bool, composite: bool, fused: bool) -> Traffic:
    """From the feed-forward's first products to the input of its last.

    Gated: activation r w, product r r w: 5 passes; backward of the product 2 (r r w), of the activation r r w: 9. One kernel: r r w, and
    r r r w w. Not gated: r w, backward r r w. ``composite``: gelu written out in Python, eight steps.

    Source:
        transformers, LlamaMLP and activations.py
    """
    if gated:
        passes = (3, 5, 1, 1) if fused else (5, 9, 2, 3)
    elif composite and not fused:
        passes = (20, 30, 8, 14)
    else:
        passes = (2, 3, 1, 1)
    return Traffic(passes[0] * size * elements, passes[1] * size * elements, passes[2], passes[3])


def residual_traffic(elements: float, size: int, *, fused: bool) -> Traffic:
    """One sum with the stream r r w; backward adds the branch's gradient to the stream's, r r w. Fused with what follows: r w less."""
    passes = 2 if fused else 3
    return Traffic(passes * size * elements, passes * size * elements, 0 if fused else 1, 0 if fused else 1)


def shared_input_traffic(elements: float, size: int, readers: int) -> Traffic:
    """An input that several products read: backward adds up their gradients, r r w for each one after the first."""
    return Traffic(0.0, 3 * size * elements * (readers - 1), 0, readers - 1)


def dropout_traffic(elements: float, size: int) -> Traffic:
    """Dropout r w and a mask of one byte; backward r r1 w.

    Source:
        torch's native_dropout
    """
    return Traffic((2 * size + 1) * elements, (2 * size + 1) * elements, 1, 1)


def scores_traffic(cells: float, size: int, *, softmax_bytes: int) -> Traffic:
    """Attention whose scores are a tensor (eager, math): scale r w, mask r w, softmax r w in ``softmax_bytes``, back; backward of each.

    Source:
        transformers, eager_attention_forward; aten, _scaled_dot_product_attention_math
    """
    widens = softmax_bytes > size
    forward = 4 * size + 2 * softmax_bytes + (2 * (size + softmax_bytes) if widens else 0)
    backward = 4 * size + 3 * softmax_bytes + (2 * (size + softmax_bytes) if widens else 0)
    return Traffic(forward * cells, backward * cells, 5, 5)


def experts_traffic(rows: float, hidden: int, size: int, *, experts: float, grouped: bool, fused: bool) -> Traffic:
    """Rows are picked out (r w), weighted (r w) and added up (r r w); backward the same again with the gradient of the shares.

    One expert after another is a dozen kernels for each (index, products apart, activation, index_add); grouped a dozen in all.

    Source:
        transformers 4.57, MixtralSparseMoeBlock; transformers 5, integrations/moe.py
    """
    elements = rows * hidden
    loops = 1.0 if grouped or fused else experts
    return Traffic(7 * size * elements, 9 * size * elements, 12 * loops, 16 * loops)


def adapter_traffic(rows: float, inputs: float, outputs: float, *, dropout: bool, autocast: bool, wide: bool, fused: bool) -> Traffic:
    """Beside an adapter's two products: casts of its input, scaling, the sum with the layer's output, and dropout.

    16 bits: scaling r2 w2 and sum r2 r2 w2 of the output; backward scaling r2 w2, and the input's gradient is added r2 r2 w2.
    ``wide`` adapters under autocast: the input goes to float32 and back (r2 w4, r4 w2), and so does its gradient, and both weights are
    cast; without autocast products and sums are float32. Fused (Unsloth, foak): the sum alone.

    Source:
        peft, tuners/lora/layer.py
    """
    if fused:
        return Traffic(0.0, 6 * rows * inputs, 1, 1)
    read, written, read_back, written_back = 0.0, 10.0, 6.0, 4.0
    launches = 2
    if wide and autocast:
        read, read_back, launches = 12.0, 18.0, 6
    elif wide:
        read, written, read_back, written_back, launches = 6.0, 24.0, 14.0, 14.0, 4
    if dropout:
        element = 4 if wide else 2
        read, read_back, launches = read + 2 * element + 1, read_back + 2 * element + 1, launches + 1
    return Traffic(rows * (read * inputs + written * outputs), rows * (read_back * inputs + written_back * outputs), launches, launches)


def loss_traffic(logits: float, size: int, wide: int, *, kernel: str, copies_shifted: bool, compiled: bool) -> Traffic:
    """Cross entropy over ``logits`` elements of ``size`` bytes that it sees in ``wide`` bytes.

    standard: cast, log-softmax r w; backward: zeros w, softmax r r w, cast back; older transformers copy the shifted logits both ways.
    inplace: cast, one kernel r r w. fused, or compiled with chunks: read twice and written once in place.

    Source:
        transformers, loss/loss_utils.py; aten, log_softmax and nll_loss; Hsu et al. 2024 (Liger Kernel)
    """
    if kernel == "fused":
        return Traffic(3 * size * logits, 0.0, 64, 2)
    if compiled:
        return Traffic(2 * size * logits, 2 * size * logits, 3, 3)
    cast = size + wide if wide != size else 0
    shift = 2 * wide if copies_shifted else 0
    if kernel == "inplace":
        return Traffic((cast + shift + 3 * wide) * logits, (cast + shift + 2 * wide) * logits, 3, 3)
    return Traffic((cast + shift + 2 * wide) * logits, (cast + shift + 4 * wide) * logits, 4, 4)


def cast_traffic(elements: float, source: int, target: int) -> float:
    """Bytes of one cast: r w [bytes]."""
    return elements * (source + target) if source != target else 0.0


def fp8_traffic(rows: float, inputs: float, outputs: float, *, compiled: bool) -> Traffic:
    """A product in fp8 needs the largest magnitude of each factor (r2) and its copy in one byte (r2 w1, and once more transposed).

    Forward: input and weight. Backward: the gradient of the output. Compiled, the first read is fused with what made the tensor.

    Source:
        torchao, float8 (dynamic tensorwise scaling); Micikevicius et al. 2022
    """
    passes = 4 if compiled else 6
    factors = rows * inputs + inputs * outputs
    return Traffic(passes * factors, passes * rows * outputs, 2 if compiled else 6, 1 if compiled else 3)
