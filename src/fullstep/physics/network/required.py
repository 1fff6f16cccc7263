"""The network that one needs: the smallest line rate of a node that keeps exposed communication under a share of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fullstep.physics.network.collective import Collective, sent_bytes
from fullstep.physics.network.exposure import PhaseSeconds, added_at, talks
from fullstep.physics.network.fabric import Fabric
from fullstep.quantities import GBIT_BYTES, Bounds

EXPOSED_SHARE = 0.10
"""of the step's time, that communication may take by default"""
LEAST_GBIT_S, MOST_GBIT_S = 0.1, 100_000.0
"""between which a line rate is sought"""
_NEAR = 1.002
"""how near the rate that is found is to the smallest"""


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


def required_network(
    collectives: Sequence[Collective], fabric: Fabric, compute: PhaseSeconds, exposed_share: float = EXPOSED_SHARE, *, idle: float = 0.0
) -> RequiredNetwork:
    """The smallest line rate per node at which communication adds no more than ``exposed_share`` of the step [Gbit/s].

    It is sought by halving, since what communication adds falls as the line grows: ``added(rate) = x / (1 - x) * (compute + idle)``.

    Args:
        collectives: of one optimizer step
        fabric: what joins GPUs inside a node; whether the network is RDMA, if known. Its line rate is not used
        compute: of one optimizer step, by phase [s]
        exposed_share: x
        idle: of one optimizer step, in the bubble of a pipeline [s]

    Returns:
        bounds by what links achieve: low at their best

    Valid:
        as ``exposure.exposed_seconds``, whose likely value it inverts
    """
    node_bytes = sum(sent_bytes(one).between_nodes for one in collectives) * fabric.gpus_per_node
    if node_bytes == 0:
        return RequiredNetwork(Bounds.exact(0.0), 0.0, "nothing is sent between nodes")
    if talks([one for one in collectives if one.nodes < 2], fabric, 1) is None:
        return RequiredNetwork(None, node_bytes, "; ".join(fabric.why_unknown))
    allowed = allowed_seconds(compute.total + idle, exposed_share)
    low, likely, high = (_least_rate(collectives, fabric, compute, allowed, end) for end in range(3))
    if likely is None:
        alone = "traffic inside the nodes and waiting for the slowest GPU alone are"
        why = f"no network is enough, {alone} more than {100 * exposed_share:g} % of the step"
        return RequiredNetwork(None, node_bytes, why)
    return RequiredNetwork(Bounds(likely if low is None else min(low, likely), likely, max(likely, high or MOST_GBIT_S)), node_bytes, "")


def _least_rate(
    collectives: Sequence[Collective], fabric: Fabric, compute: PhaseSeconds, allowed: float, end: int
) -> float | None:  # fmt: skip
    """The line rate [Gbit/s] from which on no more than ``allowed`` [s] is added; None: none up to the largest."""

    def is_enough(gbit_s: float) -> bool:
        added = added_at(collectives, fabric._replace(node_bytes_per_second=gbit_s * GBIT_BYTES), compute, end)
        return added is not None and added <= allowed

    low, high = LEAST_GBIT_S, MOST_GBIT_S
    if not is_enough(high):
        return None
    while high > low * _NEAR:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


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
