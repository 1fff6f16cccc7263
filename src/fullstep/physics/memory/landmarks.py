"""The blocks at which a peak can lie."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

Checkpointing = Literal["none", "full", "selective"] | int


class Landmark(NamedTuple):
    """A block at which a peak can lie: the first and the last of each kind. Peaks between them lie between theirs."""

    position: int
    """of the block, counted from the embedding on"""
    kind: int
    checkpointed: bool
    before: tuple[tuple[int, bool, int], ...]
    """how many blocks (kind, checkpointed or not, count) come before it"""


Counts = tuple[tuple[int, bool, int], ...]
"""(kind of block, checkpointed or not, how many)"""


@lru_cache(maxsize=256)
def landmarks(layers: tuple[int, ...], checkpointing: Checkpointing, *, neighbours: bool = False) -> tuple[tuple[Landmark, ...], Counts]:
    """Blocks at which a peak can lie, in order, and the counts over all blocks.

    What is alive at a block is linear in its position among equal blocks, so the worst lies at the first or the last of each kind.
    ``neighbours``: with the second and the last but one, since the outermost blocks gather nothing ahead.

    Args:
        layers: kind of each block, from the embedding on
        checkpointing: none, full, selective, or n for every n-th block

    Returns:
        landmarks, and (kind, checkpointed, count)

    >>> marks, counts = landmarks((0, 0, 0, 0), 2)
    >>> counts
    ((0, True, 2), (0, False, 2))
    """
    every = checkpointing if isinstance(checkpointing, int) else 0
    marks = [(kind, checkpointing == "full" or (every > 0 and index % every == 0)) for index, kind in enumerate(layers)]
    found: list[Landmark] = []
    counts: dict[tuple[int, bool], int] = {}
    for index, mark in enumerate(marks):
        inner = neighbours and index in (1, len(layers) - 2)
        if inner or mark not in marks[:index] or mark not in marks[index + 1 :]:
            before = tuple((kind, checkpointed, count) for (kind, checkpointed), count in counts.items())
            found.append(Landmark(index, mark[0], mark[1], before))
        counts[mark] = counts.get(mark, 0) + 1
    return tuple(found), tuple((kind, checkpointed, count) for (kind, checkpointed), count in counts.items())
