"""What collectives took on real links, in the terms of a ring, to stand in the place of what is assumed of such links."""

from __future__ import annotations

from math import log
from typing import NamedTuple

from fullstep.quantities import GBIT_BYTES, Bounds


class MeasuredLine(NamedTuple):
    """One collective as a record of links has it."""

    collective: str
    """all_reduce, all_gather, reduce_scatter, send"""
    ranks: int
    nodes: int
    latency_seconds: float
    """of a call of so many ranks, without its bytes [s]"""
    bytes_per_second: float
    """per rank and direction [B/s]"""
    beside: tuple[tuple[float, Bounds], ...]
    """(bytes that each rank sends, seconds over those of the line: first quartile, median, third quartile), the shortest first"""
    line_gbit_s: float | None = None
    """of the network of a node on which it was measured [Gbit/s]; None: all ranks sat in one node"""

    @property
    def ranks_per_node(self) -> int:
        return self.ranks // self.nodes

    @property
    def achieved_share(self) -> float | None:
        """Of the network's line rate, that the ranks of a node sent together; None: no network was passed."""
        return None if self.line_gbit_s is None else self.bytes_per_second / (self.line_gbit_s * GBIT_BYTES)

    def seconds(self, sent_bytes: float, steps_share: float = 1.0, rate_share: float = 1.0) -> Bounds:
        """Of a call [s]: ``(share of steps * latency + sent / (share of rate * B)) * what was measured over the line at that size``.

        Between two sizes the factor lies in proportion to the logarithm of the bytes; beyond the shortest and the longest it stays.

        Example: 10 us and 1 GB/s; a message of 1 MB took 1.2 times what the line says: ``(10 + 1000) us * 1.2`` = 1.212 ms.

        Args:
            sent_bytes: by each rank on a ring
            steps_share: steps of the ring over those of the ring that was measured
            rate_share: of the rate that was measured, that so many ranks reach

        >>> line = MeasuredLine("send", 2, 1, 10e-6, 1e9, ((1e6, Bounds(1.1, 1.2, 1.4)),))
        >>> round(line.seconds(1e6).likely * 1e6)
        1212
        """
        plain = steps_share * self.latency_seconds + sent_bytes / (rate_share * self.bytes_per_second)
        return Bounds(*(plain * factor for factor in self._beside(sent_bytes)))

    def _beside(self, sent_bytes: float) -> Bounds:
        below = [each for each in self.beside if each[0] <= sent_bytes]
        above = [each for each in self.beside if each[0] > sent_bytes]
        if not below or not above:
            return (below[-1] if below else above[0])[1]
        (first, one), (second, other) = below[-1], above[0]
        share = log(sent_bytes / first) / log(second / first)
        return Bounds(*(a + share * (b - a) for a, b in zip(one, other, strict=True)))
