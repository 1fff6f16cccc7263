"""The collectives that are timed, on buffers that are made once; and whether what they bring is right."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from fullstep.errors import LabError
from fullstep.lab.link.task import WORD_BYTES

Call = Callable[[], object]
_NOT_THERE = ("not support", "not implemented", "unsupported")
"""what torch says of a collective that a backend does not have"""


class Buffers:
    """Two on each rank, of the longest message. All pages are written, so that none is made while a call is timed.

    Args:
        largest_bytes: of all messages
        device: of this rank
    """

    def __init__(self, largest_bytes: int, device: torch.device) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self._first, self._second = (torch.empty(largest_bytes // WORD_BYTES, device=device).fill_(0.0) for _ in range(2))

    def call(self, collective: str, size_bytes: int) -> Call:
        """The collective with messages of this size. Sums of zeros stay zeros, however often it is called."""
        words = size_bytes // WORD_BYTES
        first, second, part = self._first[:words], self._second[:words], self._second[: words // self.ranks]
        calls: dict[str, Call] = {
            "all_reduce": lambda: dist.all_reduce(first),
            "all_gather": lambda: dist.all_gather_single(first, part),
            "reduce_scatter": lambda: dist.reduce_scatter_single(part, first),
            "send": lambda: self._send(first, second),
        }
        return calls[collective]

    def try_out(self, collective: str, size_bytes: int) -> str:
        """One call whose outcome is looked at. Returns why the backend does not have it; empty where it does.

        Raises:
            LabError: what it brings is wrong
        """
        words = size_bytes // WORD_BYTES
        begins = self._second if collective == "all_gather" else self._first
        ends = self._first if collective in ("all_reduce", "all_gather") else self._second
        begins.fill_(self.rank + 1.0)
        try:
            self.call(collective, size_bytes)()
        except (RuntimeError, NotImplementedError) as error:
            said = str(error)
            if isinstance(error, dist.DistError) or not any(phrase in said.lower() for phrase in _NOT_THERE):
                raise
            return said.splitlines()[0][:200]
        expected = self._expected(collective, words)
        if not torch.equal(ends[: expected.numel()], expected):
            raise LabError(f"{collective} on {self.ranks} ranks brought wrong numbers")
        for buffer in (self._first, self._second):
            buffer.fill_(0.0)
        return ""

    def _expected(self, collective: str, words: int) -> torch.Tensor:
        """Of ranks that each sent their number, counted from 1."""
        device, total = self._first.device, self.ranks * (self.ranks + 1) / 2
        if collective == "all_gather":
            return torch.arange(1.0, self.ranks + 1, device=device).repeat_interleave(words // self.ranks)
        if collective == "send":
            return torch.full((words,), float((self.rank - 1) % self.ranks + 1), device=device)
        return torch.full((words if collective == "all_reduce" else words // self.ranks,), total, device=device)

    def _send(self, first: torch.Tensor, second: torch.Tensor) -> None:
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, first, after), dist.P2POp(dist.irecv, second, before)]):
            work.wait()
