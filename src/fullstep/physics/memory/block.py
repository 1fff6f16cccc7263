"""One decoder block, written down as a tape."""

from __future__ import annotations

from functools import lru_cache

from fullstep.models import Block, Linear
from fullstep.physics.memory.attention import attention
from fullstep.physics.memory.kernels import Kernels
from fullstep.physics.memory.layers import activation, add, linear, norm, product
from fullstep.physics.memory.tape import Profile, Tape


@lru_cache(maxsize=1024)
def block_profile(block: Block, kernels: Kernels, hidden: int) -> Profile:
    """Bytes of one block for one micro-batch. ``hidden`` is the width of the stream."""
    tape = Tape(kernels.tokens * hidden * kernels.residual, recomputes=kernels.compile)
    linears = {linear_.role: linear_ for linear_ in block.linears}
    norms = {norm_.place: norm_ for norm_ in block.norms}
    stream = 0
    entered = norm(tape, kernels, stream, norms["attention_input"]) if "attention_input" in norms else stream
    mixed = attention(tape, kernels, entered, block, linears, norms)  # type: ignore[arg-type]
    if "attention_output" in norms:
        mixed = norm(tape, kernels, mixed, norms["attention_output"], hidden)
    if block.parallel_residual:
        second = norm(tape, kernels, stream, norms["feed_forward_input"]) if "feed_forward_input" in norms else entered
        fed = feed_forward(tape, kernels, second, block, linears)  # type: ignore[arg-type]
        add(tape, add(tape, stream, mixed), fed)
        return tape.play()
    stream = add(tape, stream, mixed)
    entered = norm(tape, kernels, stream, norms["feed_forward_input"]) if "feed_forward_input" in norms else stream
    fed = feed_forward(tape, kernels, entered, block, linears)  # type: ignore[arg-type]
    if "feed_forward_output" in norms:
        fed = norm(tape, kernels, fed, norms["feed_forward_output"], hidden)
    add(tape, stream, fed)
    return tape.play()


def feed_forward(tape: Tape, kernels: Kernels, source: int, block: Block, linears: dict[str, Linear]) -> int:
    """Dense, or experts, or experts with shared ones beside."""
    if block.feed_forward.experts == 0:
        return _dense(tape, kernels, source, block.feed_forward.activation, linears, "")
    routed = _experts(tape, kernels, source, block, linears)
    if block.feed_forward.shared_intermediate:
        shared = _dense(tape, kernels, source, block.feed_forward.activation, linears, "shared_")
        if "shared_router" in linears:
            gate = linear(tape, kernels, source, linears["shared_router"])
            shared = product(tape, gate, shared)
        routed = add(tape, routed, shared)
    return routed


def _dense(tape: Tape, kernels: Kernels, source: int, name: str, linears: dict[str, Linear], prefix: str) -> int:
    joined = linears.get(prefix + "gate_up")
    if joined is not None:
        both = linear(tape, kernels, source, joined)
        inner = tape.op((both,), tape.size(both) / 2, saves=(both,), cheap=True)
        inner = tape.op((both, inner), tape.size(both) / 2, saves=(both, inner), cheap=True)
    elif prefix + "gate" in linears:
        gate = activation(tape, linear(tape, kernels, source, linears[prefix + "gate"]), name)
        inner = product(tape, gate, linear(tape, kernels, source, linears[prefix + "up"]))
    else:
        inner = activation(tape, linear(tape, kernels, source, linears[prefix + "up"]), name)
    return linear(tape, kernels, inner, linears[prefix + "down"])


def _experts(tape: Tape, kernels: Kernels, source: int, block: Block, linears: dict[str, Linear]) -> int:
    """Each token's row is copied once per expert that it goes to, passes that expert, is weighted and summed up again."""
    shape = block.feed_forward
    tokens = kernels.tokens * shape.experts_per_token
    compute = kernels.compute
    down = linears["down"]
    width = down.outputs
    router = linears.get("router")
    weights = linear(tape, kernels, source, router) if router is not None else source
    shares = tape.op((weights,), kernels.tokens * shape.experts * 4, saves_output=True)
    rows = tape.op((source,), tokens * width * compute)
    joined = linears.get("gate_up")
    if joined is not None:
        both = _grouped(tape, kernels, rows, joined, tokens)
        inner = tape.op((both,), tokens * shape.intermediate * compute, saves=(both,), cheap=True)
        inner = tape.op((both, inner), tokens * shape.intermediate * compute, saves=(both, inner), cheap=True)
    elif "gate" in linears:
        gate = activation(tape, _grouped(tape, kernels, rows, linears["gate"], tokens), shape.activation)
        inner = product(tape, gate, _grouped(tape, kernels, rows, linears["up"], tokens))
    else:
        inner = activation(tape, _grouped(tape, kernels, rows, linears["up"], tokens), shape.activation)
    out = _grouped(tape, kernels, inner, down, tokens)
    weighted = tape.op((out, shares), tokens * width * compute, saves=(out,))
    return tape.op((weighted,), kernels.tokens * width * compute)


def _grouped(tape: Tape, kernels: Kernels, source: int, shape: Linear, tokens: float) -> int:
    """The product of all experts with their rows. One after another in a loop, one expert is quantized or gathered at a time."""
    return linear(tape, kernels, source, shape, tokens)
