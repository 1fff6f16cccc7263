"""How many full rows several short ones make: cut where a row ends, or whole by best fit."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter

from fullstep.datasets.lengths import Distribution


def rows_packed_by_cutting(rows: Distribution, sequence_tokens: int) -> int:
    """Rows where all are put one behind the other and cut into pieces of one length; nothing is lost.

    Equation:
        ``ceil(tokens / sequence)``

    Source:
        TRL ``packing_strategy="wrapped"``, torchtune ``split_across_pack=True``, Megatron's GPT data set, ``run_clm``; the two last leave
        out the incomplete row at the end

    >>> rows_packed_by_cutting(Distribution([3, 3, 3]), sequence_tokens=4)
    3
    """
    return -(-rows.tokens // sequence_tokens)


def rows_packed_by_best_fit(rows: Distribution, sequence_tokens: int) -> int:
    """Rows where each stays whole: from the longest on, each goes where the least room is left that takes it (best-fit decreasing).

    Rows that are longer than the length are cut there. All rows of one length are placed together: the fullest bin with room r >= l takes
    ``r // l`` of them, because while it takes one more it stays the fullest.

    Args:
        rows: their lengths
        sequence_tokens: length of a full row [tokens]

    Source:
        TRL ``packing_strategy="bfd"``, its default; D. S. Johnson, Near-optimal bin packing algorithms, 1973. First-fit decreasing
        (axolotl) needs about as many. Trainers pack a thousand rows or so at a time and need a few more.

    >>> rows_packed_by_best_fit(Distribution([4, 3, 3, 2, 2, 1, 1]), sequence_tokens=4)  # 4 | 3 1 | 3 1 | 2 2
    4
    """
    cut = rows.cut_at(sequence_tokens)
    bins: Counter[int] = Counter()
    rooms: list[int] = []
    for length, count in reversed(list(cut)):
        if length:
            _place(length, count, bins, rooms, sequence_tokens)
    return sum(bins.values())


def _place(length: int, count: int, bins: Counter[int], rooms: list[int], sequence_tokens: int) -> None:
    """Puts so many rows of one length into the bins: how many have which room left, and these rooms in order."""
    while count:
        at = bisect_left(rooms, length)
        room = rooms[at] if at < len(rooms) else sequence_tokens
        takes = room // length
        filled = min(bins[room], count // takes) if at < len(rooms) else count // takes
        if filled:
            left, moved, placed = room - takes * length, filled, filled * takes
        else:
            left, moved, placed = room - count * length, 1, count
        if at < len(rooms):
            bins[room] -= moved
            if not bins[room]:
                rooms.pop(at)
        if not bins[left]:
            insort(rooms, left)
        bins[left] += moved
        count -= placed
