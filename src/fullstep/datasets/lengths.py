"""How long rows are: a count for each length, and what one asks of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from math import ceil


class Distribution:
    """Lengths of rows [tokens]. The order of the rows is not in it."""

    def __init__(self, lengths: Iterable[int]) -> None:
        counted = sorted(Counter(lengths).items())
        self.lengths = [length for length, _ in counted]
        """that occur, from the shortest to the longest"""
        self.counts = [count for _, count in counted]
        """rows of each of them"""

    @cached_property
    def _up_to(self) -> list[int]:
        return list(accumulate(self.counts))

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._up_to[-1] if self._up_to else 0

    @cached_property
    def tokens(self) -> int:
        """Of all rows together."""
        return sum(length * count for length, count in self)

    @property
    def longest(self) -> int:
        """The length of the longest row; 0 without rows."""
        return self.lengths[-1] if self.lengths else 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Lengths and their counts, from the shortest on."""
        return iter(zip(self.lengths, self.counts, strict=True))

    def percentile(self, percent: float) -> int:
        """The length that at least this many percent of the rows do not exceed (nearest rank).

        Equation:
            the length of row ``ceil(percent / 100 * rows)``, counted from the shortest

        >>> Distribution([15, 20, 35, 40, 50]).percentile(30)
        20
        """
        rank = max(1, ceil(percent * self.rows / 100))
        return self.lengths[bisect_left(self._up_to, rank)]

    def cut_at(self, sequence_tokens: int) -> Distribution:
        """The same rows where what goes beyond this length is lost.

        >>> list(Distribution([1, 5, 9]).cut_at(4))
        [(1, 1), (4, 2)]
        """
        cut = Distribution(())
        whole = bisect_left(self.lengths, sequence_tokens)
        longer = sum(self.counts[whole:])
        cut.lengths = self.lengths[:whole] + ([sequence_tokens] if longer else [])
        cut.counts = self.counts[:whole] + ([longer] if longer else [])
        return cut

    def rows_longer_than(self, tokens: int) -> int:
        """How many rows do not fit into so many tokens.

        >>> Distribution([1, 5, 9]).rows_longer_than(5)
        1
        """
        return self.rows - sum(count for length, count in self if length <= tokens)

    def histogram(self) -> list[tuple[int, int]]:
        """Rows by powers of two: up to this length, and above the half of it.

        >>> Distribution([1, 3, 4, 5]).histogram()
        [(1, 1), (2, 0), (4, 2), (8, 1)]
        """
        sizes: Counter[int] = Counter()
        for length, count in self:
            sizes[(length - 1).bit_length() if length else 0] += count
        return [(2**power, sizes[power]) for power in range(min(sizes), max(sizes) + 1)] if sizes else []
