"""All ranks of a training: what goes wrong on one of them is told to all, so that no rank waits for one that has given up."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from fullstep.resume.errors import LoadError, ResumeError, SaveError

FAILURES: tuple[type[BaseException], ...] = (Exception, CheckpointException)
"""what torch.distributed.checkpoint raises; its own is no Exception"""
_MOST_SHOWN = 2
_WHERE_IN_SOURCE = re.compile(r"^\[\S+:\d+\] ")
_Value = TypeVar("_Value")
_Kind = type[LoadError] | type[SaveError]


class Ranks:
    """All ranks call the same methods in the same order.

    Args:
        group: of gloo, used by one thread alone; None: one process
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self.rank: int = 0 if group is None else dist.get_rank(group)
        self.count: int = 1 if group is None else dist.get_world_size(group)

    def together(self, act: Callable[[], _Value], kind: _Kind) -> _Value:
        """Does something on every rank; where it fails on one, it has failed on all.

        Raises:
            ResumeError: of that kind, with what the first of them said
        """
        value: Any = None
        error: BaseException | None = None
        try:
            value = act()
        except FAILURES as failure:
            error = failure
        told = self.share(None if error is None else _told(error, self.count), kind)
        failed = [(rank, each) for rank, each in enumerate(told) if each is not None]
        if failed:
            raise kind(*_of_all(failed, self.count)) from error
        done: _Value = value
        return done

    def share(self, mine: _Value, kind: _Kind) -> list[_Value]:
        """What every rank has, by rank.

        Raises:
            ResumeError: of that kind: a rank is lost
        """
        if self._group is None:
            return [mine]
        everywhere: list[Any] = [None] * self.count
        try:
            dist.all_gather_object(everywhere, mine, group=self._group)
        except RuntimeError as error:
            raise kind(f"not every rank answers: {said(error)}") from error
        return everywhere

    def from_first(self, ask: Callable[[], _Value], kind: _Kind) -> _Value:
        """What rank 0 finds, on every rank: others may see a shared folder differently. Its error is everybody's.

        Raises:
            ResumeError: of that kind
        """
        told: list[Any] = [None, None]
        error: BaseException | None = None
        if self.rank == 0:
            try:
                told[0] = ask()
            except FAILURES as failure:
                error, told[1] = failure, _told(failure, self.count)
        if self._group is not None:
            try:
                dist.broadcast_object_list(told, group_src=0, group=self._group)
            except RuntimeError as lost:
                raise kind(f"not every rank answers: {said(lost)}") from lost
        if told[1] is not None:
            raise kind(*told[1]) from error
        found: _Value = told[0]
        return found


def failures_of(error: BaseException | None) -> dict[int, BaseException]:
    """The errors of single ranks, where torch wraps them."""
    failures = getattr(error, "failures", None)
    if not isinstance(failures, Mapping):
        return {}
    return {rank: each[0] if isinstance(each, tuple) else each for rank, each in failures.items()}


def _told(error: BaseException, ranks: int) -> tuple[str, str]:
    return (error.what, error.remedy) if isinstance(error, ResumeError) else (said(error, ranks), "")


def _of_all(failed: list[tuple[int, tuple[str, str]]], ranks: int) -> tuple[str, str]:
    """What happened, in a line, and its remedy.

    >>> _of_all([(1, ("no space", ""))], 2), _of_all([(0, ("no", "")), (1, ("no", ""))], 2)
    (('rank 1: no space', ''), ('no', ''))
    >>> _of_all([(0, ("lost", "")), (2, ("dead", "")), (3, ("lost", ""))], 4)
    ('rank 0: lost; rank 2: dead (and 1 other ranks)', '')
    """
    first: dict[str, int] = {}
    for rank, (what, _) in failed:
        first.setdefault(what, rank)
    remedy = failed[0][1][1]
    if len(failed) == ranks and len(first) == 1:
        return failed[0][1][0], remedy
    shown = [f"rank {rank}: {what}" for what, rank in first.items()][:_MOST_SHOWN]
    others = len(failed) - len(shown)
    return "; ".join(shown) + (f" (and {others} other ranks)" if others else ""), remedy


def said(error: BaseException, ranks: int = 0) -> str:
    """What an error says, in a line; torch's own wraps the errors of all ranks.

    >>> said(OSError(28, "No space left on device", "runs/a"))
    'No space left on device: runs/a'
    >>> said(CheckpointException("write", {1: (OSError(5, "Input/output error"), None)}), ranks=2)
    'rank 1: Input/output error'
    """
    if failures := failures_of(error):
        return _of_all([(rank, (said(each), "")) for rank, each in sorted(failures.items())], ranks)[0]
    if isinstance(error, ResumeError):
        return error.what
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    lines = str(error).strip().splitlines()
    kind = "" if type(error) is RuntimeError and lines else f"{type(error).__name__}: "
    return kind + _WHERE_IN_SOURCE.sub("", lines[-1] if lines else "")[:300]
