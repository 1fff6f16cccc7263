"""One decoder block, written down as a tape."""

from __future__ import annotations

from functools import lru_cache

from fullstep.models import Block
from fullstep.physics.memory.adapters import bottleneck
from fullstep.physics.memory.attention import Parts, attention
from fullstep.physics.memory.kernels import FLOAT32, Kernels
from fullstep.physics.memory.layers import activation, add, gathered, linear, norm, product, summed
from fullstep.physics.memory.tape import Profile, Tape


@lru_cache(maxsize=1024)
def block_profile(block: Block, kernels: Kernels, hidden: int) -> Profile:
    """Bytes of one block for one micro-batch: what it keeps, and its peaks forward and backward.

    ``saved`` follows from the operations. For a llama block per token in bfloat16:
    ``16 h + 4 q + 4 k + 8 f + 4 heads + 8`` with h, q, k, f the widths of stream, queries, keys and feed-forward layer; under autocast
    with float32 weights ``26 h + ...``; LoRA on all linears under autocast ``18 h + 6 q + 4 k + 8 f + 4 heads + 8 + 14 rank``.

    Example: Llama-3.1-8B, h = q = 4096, k = 1024, f = 14336, 32 heads:
    ``65,536 + 16,384 + 4,096 + 114,688 + 128 + 8 = 200,840`` bytes per token and block.

    Args:
        block: its layers
        kernels: dtypes, kernels and rows
        hidden: width of the stream [elements]

    Returns:
        sizes of the played tape [bytes]

    Source:
        the modelling code of transformers 5.23; torch's derivatives.yaml

    Valid:
        within 1 % of traces of 25 model types
    """
    local = kernels.on_the_stream()
    tape = Tape(local.tokens * hidden * kernels.residual, recomputes=kernels.compile)
    parts = Parts(block, {linear_.role: linear_ for linear_ in block.linears}, {norm_.place: norm_ for norm_ in block.norms})
    norms, stream = parts.norms, 0
    entered = norm(tape, local, stream, norms["attention_input"]) if "attention_input" in norms else stream
    entered = gathered(tape, kernels, entered)
    mixed = summed(tape, kernels, attention(tape, kernels, entered, parts))
    if "attention_output" in norms:
        mixed = norm(tape, local, mixed, norms["attention_output"], hidden)
    mixed = dropout(tape, local, mixed, hidden) if block.dropouts else mixed
    mixed = bottleneck(tape, local, mixed, hidden)
    if not block.parallel_residual:
        stream = add(tape, stream, mixed)
        entered = norm(tape, local, stream, norms["feed_forward_input"]) if "feed_forward_input" in norms else stream
        entered = gathered(tape, kernels, entered)
    elif "feed_forward_input" in norms:
        entered = gathered(tape, kernels, norm(tape, local, stream, norms["feed_forward_input"]))
    fed = summed(tape, kernels, feed_forward(tape, kernels, entered, parts))
    if "feed_forward_output" in norms:
        fed = norm(tape, local, fed, norms["feed_forward_output"], hidden)
    fed = dropout(tape, local, fed, hidden) if block.dropouts else fed
    fed = bottleneck(tape, local, fed, hidden)
    add(tape, add(tape, stream, mixed) if block.parallel_residual else stream, fed)
    return tape.play()


def dropout(tape: Tape, kernels: Kernels, source: int, width: int) -> int:
    """Dropout on ``tokens * width`` elements keeps a mask of one byte per element.

    Source:
        torch's native_dropout
    """
    return tape.op((source,), tape.size(source), extra_saved=kernels.tokens * width)


def feed_forward(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> int:
    """Dense, or experts, or experts with shared ones beside.

    Kept of a gated dense layer per token in 16 bits: gate, up, active gate, product: ``8 f`` [bytes]. Of experts the same for each of
    the ``experts_per_token`` rows, and their gathered input and output, ``2 * hidden`` each.

    Source:
        transformers 5.23, integrations/moe.py (grouped_mm), models/llama/modeling_llama.py LlamaMLP

    Valid:
        rows are taken to be spread evenly over experts; one expert after another: backward up to the smaller of kept bytes and
            gradients too high
    """
    shape, linears = parts.block.feed_forward, parts.linears
    if shape.experts == 0:
        return _dense(tape, kernels, source, parts)
    routed = _experts(tape, kernels, source, parts)
    if shape.shared_intermediate:
        shared = _dense(tape, kernels, source, parts, prefix="shared_")
        if "shared_router" in linears:
            gate = linear(tape, kernels, source, linears["shared_router"])
            shared = product(tape, gate, shared)
        routed = add(tape, routed, shared)
    return routed


def _dense(tape: Tape, kernels: Kernels, source: int, parts: Parts, *, prefix: str = "", tokens: float | None = None) -> int:
    """Up (and gate), activation, down: of a dense layer, of shared experts (``prefix``), or of experts' rows (``tokens``)."""
    linears, name = parts.linears, parts.block.feed_forward.activation
    joined = linears.get(prefix + "gate_up")
    if joined is not None:
        both = linear(tape, kernels, source, joined, tokens)
        if parts.block.feed_forward.clamped:
            return linear(tape, kernels, _clamped_glu(tape, both), linears[prefix + "down"], tokens)
        inner = tape.op((both,), tape.size(both) / 2, saves=(both,), cheap=True)
        inner = tape.op((both, inner), tape.size(both) / 2, saves=(both, inner), cheap=True)
    elif prefix + "gate" in linears:
        gate = activation(tape, kernels, linear(tape, kernels, source, linears[prefix + "gate"], tokens), name)
        inner = product(tape, gate, linear(tape, kernels, source, linears[prefix + "up"], tokens))
    else:
        up = linears[prefix + "up"]
        elements = up.outputs * (kernels.tokens if tokens is None else tokens)
        inner = activation(tape, kernels, linear(tape, kernels, source, up, tokens), name, elements)
    return linear(tape, kernels, inner, linears[prefix + "down"], tokens)


def _clamped_glu(tape: Tape, both: int) -> int:
    """``glu = gate · sigmoid(a · gate)`` and ``(up + 1) · glu``, of clamped halves: clamps keep what they clamped."""
    half = tape.size(both) / 2
    gate = tape.op((both,), half, saves=(both,))
    scaled = tape.op((gate,), half, cheap=True)
    share = tape.op((scaled,), half, saves_output=True)
    glu = tape.op((gate, share), half, saves=(gate, share), cheap=True)
    up = tape.op((tape.op((both,), half, saves=(both,)),), half)
    return tape.op((up, glu), half, saves=(up, glu), cheap=True)


def _experts(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> int:
    """Each token's row is copied once per expert that it goes to, passes that expert, is weighted and summed up again.

    Grouped products take all rows at once. One expert after another (a loop over modules) keeps as much for backward, but only
    one expert's gradients and temporaries exist at a time; rows are taken to be spread evenly.
    """
    shape, linears = parts.block.feed_forward, parts.linears
    rows = float(kernels.tokens * shape.experts_per_token)
    router = linears.get("router")
    weights = linear(tape, kernels, source, router) if router is not None else source
    experts = router.outputs if router is not None else shape.experts
    shares = tape.op((weights,), kernels.tokens * experts * FLOAT32, saves_output=True)
    size = kernels.tokens * linears["down"].outputs * kernels.compute
    if kernels.stacks_experts or kernels.deals_experts:
        weighted = _expert_rows(tape, kernels, (source, shares), parts, rows)
        if not kernels.weights_rows_in_float32:
            return tape.op((weighted,), size)
        summed_up = tape.op((tape.op((weighted,), tape.size(weighted)),), size * FLOAT32 / kernels.compute)
        return tape.op((summed_up,), size)
    one = Tape(size)
    _expert_rows(one, kernels, (0, one.tensor(0)), parts, rows / shape.experts)
    profile = one.play()
    return tape.op(
        (source, shares), size, extra_saved=profile.saved * shape.experts, trains=kernels.trains_weights,
        forward_work=profile.forward_peak - profile.saved, unsaved_work=profile.forward_peak_unsaved,
        backward_work=profile.backward_peak - profile.weight_gradient - profile.saved,
        weight_gradient=profile.weight_gradient,
    )  # fmt: skip


def _expert_rows(tape: Tape, kernels: Kernels, given: tuple[int, int], parts: Parts, rows: float) -> int:
    """Rows picked out of ``given``'s first tensor, through the experts, and weighted by the router's shares, its second."""
    source, shares = given
    size = rows * parts.linears["down"].outputs * kernels.compute
    picked = sent(tape, kernels, tape.op((source,), size))
    out = sent(tape, kernels, _dense(tape, kernels, picked, parts, tokens=rows))
    widening = FLOAT32 / kernels.compute if kernels.weights_rows_in_float32 else 1
    return tape.op((out, shares), size * widening, saves=(out,), backward_work=size * widening)


def sent(tape: Tape, kernels: Kernels, rows: int) -> int:
    """Rows on their way to the ranks of their experts, or back: a tensor that is sent and one that is received.

    ``tokens * experts_per_token * hidden`` elements each, when routing is even; both are there while they travel, forward and backward.

    Source:
        Lepikhin et al. 2020, GShard, section 3.2; Megatron-LM, core/transformer/moe/token_dispatcher.py MoEAlltoAllTokenDispatcher

    Valid:
        for even routing; a rank whose experts are chosen twice as often receives twice the rows
    """
    return tape.op((rows,), tape.size(rows)) if kernels.deals_experts else rows
