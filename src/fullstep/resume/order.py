"""Which rows come next: one order for all ranks, so that its position means the same however many there are."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from fullstep.resume.errors import LoadError


class DataOrder:
    """The rows of each optimizer step, shuffled anew in each epoch. An epoch that does not divide by the step's rows goes on in the next.

    Where each rank keeps a data loader's own position, another number of ranks loses rows or sees them twice; here the position is the
    number of rows that all of them have consumed.

    Args:
        rows: of the data set
        rows_per_step: of one optimizer step, over all ranks
        seed: of the shuffling
        shuffled: False: rows come as they are

    Example:
        >>> order = DataOrder(5, rows_per_step=4, shuffled=False)
        >>> order.next(), order.next()
        ([0, 1, 2, 3], [4, 0, 1, 2])
        >>> order.consumed
        8
    """

    same_on_all_ranks = True
    """its state is saved once"""

    def __init__(self, rows: int, rows_per_step: int, seed: int = 0, *, shuffled: bool = True) -> None:
        if rows < 1 or rows_per_step < 1:
            raise ValueError(f"rows = {rows} and rows_per_step = {rows_per_step}: both must be at least 1")
        self._rows, self._rows_per_step, self._seed, self._shuffled = rows, rows_per_step, seed, shuffled
        self.consumed = 0
        """rows since the beginning, over all epochs"""
        self._epoch: tuple[int, list[int]] = (-1, [])

    @property
    def epoch(self) -> int:
        """Of the next row."""
        return self.consumed // self._rows

    def next(self, rank: int = 0, ranks: int = 1) -> list[int]:
        """The rows of the next step that are this rank's: of each step the first ones are rank 0's, and so on.

        Raises:
            ValueError: the step's rows cannot be divided among so many ranks
        """
        if self._rows_per_step % ranks:
            raise ValueError(f"{self._rows_per_step} rows of a step cannot be divided among {ranks} ranks")
        each = self._rows_per_step // ranks
        first = self.consumed + rank * each
        self.consumed += self._rows_per_step
        return [self._row(number) for number in range(first, first + each)]

    def _row(self, number: int) -> int:
        epoch, place = divmod(number, self._rows)
        if not self._shuffled:
            return place
        if self._epoch[0] != epoch:
            rows = list(range(self._rows))
            random.Random(f"{self._seed} {epoch}").shuffle(rows)
            self._epoch = (epoch, rows)
        return self._epoch[1][place]

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"consumed": self.consumed, **self._settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there.

        Raises:
            LoadError: it was another order
        """
        theirs = {name: state[name] for name in self._settings()}
        if theirs != self._settings():
            raise LoadError(f"the data was ordered by {theirs}, and is now by {self._settings()}", "The rows seen so far would be others.")
        self.consumed = state["consumed"]

    def _settings(self) -> dict[str, Any]:
        return {"rows": self._rows, "seed": self._seed, "shuffled": self._shuffled}
