"""Measured links whose latencies and rates are round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fullstep.ledger.link import LINK_COLLECTIVES, LinkSample, MeasuredLink, bus_factor
from fullstep.report.link_json import link_as_dict

SIZES = (4096, 2**20, 2**30)


def link_by_hand(
    device: str = "NVIDIA H100 80GB HBM3", ranks: int = 8, latency: float = 70e-6, rate: float = 200e9, **changes: Any
) -> MeasuredLink:
    """Every collective on a line of so many seconds and bytes a second, each call like the other."""
    samples = tuple(
        LinkSample(name, size, ranks, (latency + bus_factor(name, ranks) * size / rate,) * 2) for name in LINK_COLLECTIVES for size in SIZES
    )
    plain = MeasuredLink(
        made="2026-01-01T00:00:00+00:00", device=device, backend="gloo" if device == "cpu" else "nccl", ranks=ranks, processors=96,
        iterations=2, warm_up=5, samples=samples, versions={"torch": "2.13"}, seconds=1.0,
    )  # fmt: skip
    return replace(plain, **changes)


def link_record(link: MeasuredLink) -> dict[str, Any]:
    """As the command writes it, without its digest."""
    return link_as_dict(link, (), "", ["fullstep", "link"])
