"""The feed-forward half of a block: one dense layer, or a mixture of experts."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.models.reader import ConfigReader
from fullstep.models.shape import FeedForward, Linear, Norm, Role


class Layer(NamedTuple):
    """A feed-forward layer and everything in it."""

    feed_forward: FeedForward
    linears: tuple[Linear, ...]
    norms: tuple[Norm, ...] = ()
    other_parameters: int = 0


def dense_layer(reader: ConfigReader, hidden: int) -> Layer:
    """One feed-forward layer that every token passes."""
    plan = reader.architecture.feed_forward
    width = reader.whole(plan.width)
    activation = reader.text("hidden_act")
    norm = Norm(place="feed_forward_inner", kind="rms", width=width, parameters=width)
    return Layer(
        FeedForward(gated=plan.gated, intermediate=width, activation=activation),
        _projections(reader, hidden, width),
        (norm,) if plan.inner_norm else (),
        plan.learned_activations.get(activation, 0),
    )


def _projections(reader: ConfigReader, hidden: int, width: int, *, shared: bool = False) -> tuple[Linear, ...]:
    plan = reader.architecture.feed_forward
    bias = reader.decide(plan.bias)
    roles: tuple[Role, Role, Role] = ("shared_gate", "shared_up", "shared_down") if shared else ("gate", "up", "down")
    down = Linear(name=plan.down, role=roles[2], inputs=width, outputs=hidden, bias=bias)
    if plan.gate_up:
        return (Linear(name=plan.gate_up, role="gate_up", inputs=hidden, outputs=2 * width, bias=bias), down)
    up = Linear(name=plan.up, role=roles[1], inputs=hidden, outputs=width, bias=bias)
    if not plan.gated:
        return (up, down)
    return (Linear(name=plan.gate, role=roles[0], inputs=hidden, outputs=width, bias=bias), up, down)


def expert_layer(reader: ConfigReader, hidden: int) -> Layer:
    """A router, its experts as two stacked parameters, and the experts that every token passes."""
    plan = reader.architecture.experts
    if plan is None:
        raise TypeError("the architecture has no experts")
    count = reader.whole(plan.count, high=10**5)
    per_token = reader.whole(plan.per_token, high=10**5)
    if per_token > count:
        reader.fault(plan.per_token, f"found {per_token}, more than the {count} experts", f"1 to {count}", beside=(plan.count,))
        per_token = count
    width = reader.whole(plan.width)
    shared = _shared_width(reader, width)
    linears = [
        Linear(name=plan.router, role="router", inputs=hidden, outputs=count, bias=plan.router_bias, stacked=not plan.router_module),
        Linear(name="gate_up_proj", role="gate_up", inputs=hidden, outputs=2 * width, bias=plan.bias, copies=count, stacked=True),
        Linear(name="down_proj", role="down", inputs=width, outputs=hidden, bias=plan.bias, copies=count, stacked=True),
    ]
    if shared:
        linears += _projections(reader, hidden, shared, shared=True)
        if plan.shared_router:
            linears.append(Linear(name=plan.shared_router, role="shared_router", inputs=hidden, outputs=1))
    feed_forward = FeedForward(
        gated=True,
        intermediate=width,
        activation=reader.text("hidden_act"),
        experts=count,
        experts_per_token=per_token,
        shared_intermediate=shared,
        clamped=plan.clamped,
    )
    return Layer(feed_forward, tuple(linears), (), count if plan.correction else 0)


def _shared_width(reader: ConfigReader, width: int) -> int:
    plan = reader.architecture.experts
    if plan is not None and plan.shared_width:
        return reader.optional_whole(plan.shared_width, low=0) or 0
    if plan is not None and plan.shared_count:
        return width * (reader.optional_whole(plan.shared_count, low=0, high=10**5) or 0)
    return 0
