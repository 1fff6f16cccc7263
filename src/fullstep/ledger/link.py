"""What the links between ranks gave: seconds of each call by message size, and what they come to. What a model assumes stands beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median, quantiles
from typing import Literal, NamedTuple, get_args

from fullstep.quantities import Bounds

LinkCollective = Literal["all_reduce", "all_gather", "reduce_scatter", "send"]
"""send: every rank sends to the next one and receives from the one before, all at once"""
LINK_COLLECTIVES: tuple[LinkCollective, ...] = get_args(LinkCollective)


class LinkFit(NamedTuple):
    """A line through times by size, in the terms of a ring: ``t = latency + sent / rate``, sent being what each rank sends."""

    latency_seconds: float
    """of a call: its start, and all steps of the ring"""
    bytes_per_second: float
    """per rank and direction: the bus bandwidth that an endless message would have"""
    furthest_off: float
    """the line's largest difference from a time, relative to it, of any size"""


class LinkSample(NamedTuple):
    """All timed calls of one collective with messages of one size."""

    collective: LinkCollective
    size_bytes: int
    """as nccl-tests count: what an all-gather ends with and a reduction begins with; one message of a send"""
    ranks: int
    seconds: tuple[float, ...]
    """of each call, of the slowest rank"""

    @property
    def median_seconds(self) -> float:
        """Of the calls."""
        return median(self.seconds)

    @property
    def quartile_seconds(self) -> tuple[float, float]:
        """Between which half of the calls lie."""
        if len(self.seconds) < 2:
            return self.seconds[0], self.seconds[0]
        first, _, third = quantiles(self.seconds, n=4, method="inclusive")
        return first, third

    @property
    def figures(self) -> dict[str, float | list[float]]:
        """What the calls come to, by the keys of a record."""
        return {
            "size_bytes": self.size_bytes, "median_seconds": self.median_seconds, "quartile_seconds": list(self.quartile_seconds),
            "least_seconds": min(self.seconds), "most_seconds": max(self.seconds),
            "algorithm_bytes_per_second": self.algorithm_bytes_per_second, "bus_bytes_per_second": self.bus_bytes_per_second,
        }  # fmt: skip

    @property
    def sent_bytes(self) -> float:
        """By each rank, on a ring."""
        return bus_factor(self.collective, self.ranks) * self.size_bytes

    @property
    def algorithm_bytes_per_second(self) -> float:
        """Size over the median time: algbw of nccl-tests."""
        return self.size_bytes / self.median_seconds

    @property
    def bus_bytes_per_second(self) -> float:
        """What the wire carries, whatever the number of ranks: busbw of nccl-tests."""
        return self.sent_bytes / self.median_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """One measurement: all collectives, all sizes."""

    made: str
    """time, UTC"""
    device: str
    """cpu, or the GPU's name as its driver says it"""
    backend: str
    """gloo or nccl"""
    ranks: int
    nodes: int = 1
    """of equally many ranks each"""
    network_gbit_s: float | None = None
    """line rate of a node and direction, as the one who measured states it [Gbit/s]; None: not stated, or one node"""
    processors: int
    """cores of the machine, which ranks on processors share"""
    iterations: int
    """timed calls of each size"""
    warm_up: int
    """calls before them that are not timed"""
    samples: tuple[LinkSample, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    """collectives that the backend does not have, and what it says"""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """environment variables that change what the backend does"""
    notes: tuple[str, ...] = ()
    seconds: float
    """that the measurement took"""

    def of(self, collective: str) -> tuple[LinkSample, ...]:
        """Its samples, in the order of sizes."""
        return tuple(each for each in self.samples if each.collective == collective)

    def fit(self, collective: str) -> LinkFit | None:
        """Latency and rate by the medians; None: too few sizes to tell them apart."""
        return fitted([(each.sent_bytes, each.median_seconds) for each in self.of(collective)])


class AssumedLink(NamedTuple):
    """What the network model says of one collective on the same ranks, before anything was measured."""

    collective: LinkCollective
    latency_seconds: Bounds
    """of a call without bytes"""
    seconds: tuple[tuple[int, Bounds], ...]
    """(size in bytes, time of a call) for the sizes that were measured; empty: the model knows no line rate"""
    fit: LinkFit | None
    """latency and rate of the likely times, put together from the same sizes as the measured ones"""


def bus_factor(collective: LinkCollective, ranks: int) -> float:
    """What each rank sends on a ring, over the size: ``busbw = factor * size / time``; n are the ranks::

        all_reduce                      2 * (n - 1) / n
        all_gather, reduce_scatter      (n - 1) / n
        send                            1

    Source:
        github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md @03a204a

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("send", 4)
    (1.5, 0.75, 1)
    """
    if collective == "send":
        return 1
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def fitted(points: Sequence[tuple[float, float]]) -> LinkFit | None:
    """Latency from short messages and rate from long ones.

    Of the sizes the shortest and the longest third are taken; squares of relative differences are least, so that a short message counts as
    much as a long one. What lies between may follow a curve of its own and only shows in ``furthest_off``.

    Args:
        points: (bytes that each rank sends, seconds), the shortest first

    Returns:
        None: one size alone, or no line with a latency and a rate above 0

    >>> fitted([(1e3, 101e-6), (1e6, 1.1e-3), (1e9, 1.0001)])
    LinkFit(latency_seconds=0.0001, bytes_per_second=1000000000.0, furthest_off=0.0)
    """
    if len(points) < 2:
        return None
    third = ceil(len(points) / 3)
    ends = [*points[:third], *points[max(third, len(points) - third) :]]
    ones, sents = [1 / seconds for _, seconds in ends], [sent / seconds for sent, seconds in ends]
    ones_squared, sents_squared = sum(one * one for one in ones), sum(sent * sent for sent in sents)
    mixed = sum(one * sent for one, sent in zip(ones, sents, strict=True))
    determinant = ones_squared * sents_squared - mixed * mixed
    if determinant <= 1e-9 * ones_squared * sents_squared:
        return None
    latency = (sum(ones) * sents_squared - sum(sents) * mixed) / determinant
    inverse = (sum(sents) * ones_squared - sum(ones) * mixed) / determinant
    if latency <= 0 or inverse <= 0:
        return None
    off = max(abs(latency + sent * inverse - seconds) / seconds for sent, seconds in points)
    return LinkFit(_rounded(latency), _rounded(1 / inverse), round(off, 6))


def _rounded(value: float) -> float:
    """To nine digits: more are those of the arithmetic."""
    return float(f"{value:.9g}")
