"""The network that one needs: the smallest line rate of a node that keeps exposed communication under a share of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fullstep.hardware.links import achieved_share
from fullstep.physics.network.collective import Collective, Phase, sent_bytes
from fullstep.physics.network.exposure import PHASES, PhaseSeconds, talks, waits
from fullstep.physics.network.fabric import Fabric
from fullstep.quantities import Bounds

EXPOSED_SHARE = 0.10
"""of the step's time, that communication may take by default"""


class Crossing(NamedTuple):
    """Bytes that a node sends in one phase of a step, and the compute that can hide them."""

    node_bytes: float
    window_seconds: float
    """0: nothing runs beside it"""


class RequiredNetwork(NamedTuple):
    """What a layout asks of the network between nodes."""

    gbit_s_per_node: Bounds | None
    """line rate and direction; 0: none is needed; None: none is enough"""
    node_bytes_per_step: float
    why: str
    """in words, where there is no rate to name"""


def allowed_seconds(compute_seconds: float, exposed_share: float) -> float:
    """Time that may be exposed so that it is a share x of the whole step: ``x / (1 - x) * compute`` [s].

    >>> round(allowed_seconds(2.7, 0.10), 9)
    0.3
    """
    return exposed_share / (1 - exposed_share) * compute_seconds


def required_bytes_per_second(crossings: Sequence[Crossing], allowed: float) -> float | None:
    """The smallest achieved rate B at which what is not hidden takes no longer than allowed [B/s].

    ::

        sum over phases of max(0, V / B - window) = allowed        one phase: B = V / (window + allowed)

    Example: 60.2 GB behind 2.84 s, nothing exposed: 21.2 GB/s, 169.6 Gbit/s.

    Args:
        crossings: V [bytes] and window [s] of each phase
        allowed: [s]

    Returns:
        [B/s]; 0: nothing crosses; None: no rate is enough (something must wait, and nothing may)

    Source:
        solved at the time per byte 1 / B, in which the left side rises by pieces

    >>> round(required_bytes_per_second([Crossing(60.2e9, 2.84)], 0.0) * 8 / 1e9, 1)
    169.6
    """
    crossing = sorted((one.window_seconds / one.node_bytes, one) for one in crossings if one.node_bytes > 0)
    if not crossing:
        return 0.0
    volume = window = 0.0
    for place, (starts, one) in enumerate(crossing):
        if volume and (allowed + window) / volume <= starts:
            break
        volume, window = volume + one.node_bytes, window + one.window_seconds
        following = crossing[place + 1][0] if place + 1 < len(crossing) else float("inf")
        if (allowed + window) / volume <= following:
            break
    return volume / (allowed + window) if allowed + window > 0 else None


def required_network(
    collectives: Sequence[Collective], fabric: Fabric, compute: PhaseSeconds, exposed_share: float = EXPOSED_SHARE
) -> RequiredNetwork:
    """The smallest line rate per node that keeps exposed communication at ``exposed_share`` of the step [Gbit/s].

    ::

        Gbit/s = 8e-9 * V / (achieved share * (window + x / (1 - x) * compute))     what waits inside nodes is taken off first

    Example: 60.2 GB per node behind forward and backward of 2.84 s, achieved share 0.8, x = 0.1: ``8 * 60.2 / (0.8 * 3.16)`` = 191 Gbit/s.

    Args:
        collectives: of one optimizer step
        fabric: what joins GPUs inside a node; whether the network is RDMA, if known. Its line rate is not used
        compute: of one optimizer step, by phase [s]
        exposed_share: x

    Returns:
        bounds by achieved share: low with the best that was seen on such networks

    Valid:
        long messages: latencies are not part of it, which matters below about 1 MB per rank and call, and on hundreds of nodes
    """
    node_bytes = sum(sent_bytes(one).between_nodes for one in collectives) * fabric.gpus_per_node
    if node_bytes == 0:
        return RequiredNetwork(Bounds.exact(0.0), 0.0, "nothing is sent between nodes")
    inside = talks([one for one in collectives if one.nodes < 2], fabric, 1)
    if inside is None:
        return RequiredNetwork(None, node_bytes, "; ".join(fabric.why_unknown))
    allowed = allowed_seconds(compute.total, exposed_share) - waits(inside, compute)
    rate = required_bytes_per_second(_crossings(collectives, fabric, compute), allowed) if allowed >= 0 else None
    if rate is None:
        return RequiredNetwork(None, node_bytes, f"inside the nodes alone more than {exposed_share:.0%} of the step is spent waiting")
    return RequiredNetwork(_line_rate(rate * 8e-9, fabric), node_bytes, "")


def _crossings(collectives: Sequence[Collective], fabric: Fabric, compute: PhaseSeconds) -> list[Crossing]:
    """Bytes of a node by what may hide them: nothing, the last micro-batch's part of a phase, or all of it."""
    found: dict[tuple[Phase, float], float] = {}
    for one in collectives:
        key = (one.phase, one.window if one.overlaps else 0.0)
        found[key] = found.get(key, 0.0) + sent_bytes(one).between_nodes * fabric.gpus_per_node
    seconds = dict(zip(PHASES, compute, strict=True))
    crossings = []
    for phase in PHASES:
        late = max((window for (where, window), size in found.items() if where == phase and window < 1 and size), default=0.0)
        for (where, window), size in found.items():
            if where == phase:
                share = window if window < 1 else 1 - late
                crossings.append(Crossing(size, share * seconds[phase]))
    return crossings


def _line_rate(achieved_gbit_s: float, fabric: Fabric) -> Bounds:
    """Line rate at which so much is achieved; sockets achieve a smaller share of a faster line."""
    shares = []
    for network, end in ((fabric.network_at_best, 2), (fabric.network, 1), (fabric.network, 0)):
        line = achieved_gbit_s
        for _ in range(3):  # the share depends on the line rate by steps
            line = achieved_gbit_s / achieved_share(network, "", "all_gather", line)[end]
        shares.append(line)
    return Bounds(*shares)


def required_from_measurement(
    *,
    node_bytes: float,
    line_gbit_s: float,
    step_seconds: float,
    measured_share: float,
    achieved: float,
    exposed_share: float = EXPOSED_SHARE,
) -> float | None:
    """The line rate that a measured step asks for [Gbit/s]: what was hidden stays hidden, the exposed rest shrinks as the line grows.

    ::

        exposed = measured share * step;    hidden = 8e-9 * V / (achieved * line) - exposed, at least 0
        Gbit/s  = 8e-9 * V / (achieved * (hidden + x / (1 - x) * (step - exposed)))

    Where more was exposed than the bytes take at that share, the share that the measurement shows is used: ``8e-9 V / (line * exposed)``.

    Example: 60 GB per node at 100 Gbit/s and a share of 0.8: 6 s of sending. A step of 6 s with half exposed hides 3 s; for 10 %:
    ``480 / (0.8 * (3 + 1/9 * 3))`` = 180 Gbit/s.

    Args:
        node_bytes: V, that a node sends per step [bytes]
        line_gbit_s: of the network that was measured [Gbit/s]
        step_seconds: measured [s]
        measured_share: of the step, exposed
        achieved: share of the line rate that long messages reach
        exposed_share: x that is wanted

    Returns:
        [Gbit/s] per node; None: nothing of the step may hide it

    >>> found = required_from_measurement(node_bytes=60e9, line_gbit_s=100, step_seconds=6, measured_share=0.5, achieved=0.8)
    >>> found and round(found)
    180
    """
    gbit = 8e-9 * node_bytes
    exposed = measured_share * step_seconds
    if exposed > gbit / (achieved * line_gbit_s):
        achieved = gbit / (line_gbit_s * exposed)
    hidden = max(0.0, gbit / (achieved * line_gbit_s) - exposed)
    window = hidden + allowed_seconds(step_seconds - exposed, exposed_share)
    return gbit / (achieved * window) if window > 0 else None
