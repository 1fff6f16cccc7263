"""What one rank says is everybody's. With real ranks: test_lost_ranks.py."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from fullstep.resume import LoadError, SaveError
from fullstep.resume.arguments import agreed_step
from fullstep.resume.ranks import Ranks, said

pytestmark = pytest.mark.real_classes


class Others:
    """Four ranks, of which this is the second one; the others say what is given."""

    def __init__(self, patch: pytest.MonkeyPatch, says: dict[int, Any], lost: str = "") -> None:
        self.says, self.lost, self.told = says, lost, []
        patch.setattr(dist, "get_rank", lambda _: 1)
        patch.setattr(dist, "get_world_size", lambda _: 4)
        patch.setattr(dist, "all_gather_object", self._gather)
        patch.setattr(dist, "broadcast_object_list", self._broadcast)
        self.ranks = Ranks("a group")  # type: ignore[arg-type]

    def _gather(self, everywhere: list[Any], mine: Any, group: str) -> None:
        if self.lost:
            raise RuntimeError(self.lost)
        assert group == "a group" and len(everywhere) == 4
        self.told.append(pickle.loads(pickle.dumps(mine)))
        everywhere[:] = [mine if rank == 1 else self.says.get(rank) for rank in range(4)]

    def _broadcast(self, told: list[Any], group_src: int, group: str) -> None:
        if self.lost:
            raise RuntimeError(self.lost)
        told[:] = self.says[group_src]


def _raises(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


def test_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(monkeypatch, {})
    assert others.ranks.together(lambda: 5, SaveError) == 5
    assert others.told == [None]  # what is large is not sent around
    assert Others(monkeypatch, {0: 1, 2: 2, 3: 3}).ranks.share(7, SaveError) == [1, 7, 2, 3]
    assert Others(monkeypatch, {0: ["found", None]}).ranks.from_first(_raises(AssertionError("not asked")), LoadError) == "found"


def test_all_save_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(monkeypatch, {0: (3, ""), 2: (3, ""), 3: (3, "")})
    assert agreed_step(3, {"loss": 1.5}, others.ranks) == 3
    with pytest.raises(SaveError, match="rank 0: saves step 3, and rank 1 saves step 4"):
        agreed_step(4, None, others.ranks)
    with pytest.raises(ValueError, match=r"step = 1\.5: a whole number"):
        agreed_step(1.5, None, others.ranks)  # type: ignore[arg-type]
    assert others.told[-1] == (1.5, "step = 1.5: a whole number from 0 on")  # so that no rank waits for this one
    others = Others(monkeypatch, {0: (3, ""), 2: (3, "note: it holds itself"), 3: (3, "")})
    with pytest.raises(SaveError, match="rank 2: note: it holds itself"):
        agreed_step(3, None, others.ranks)


def test_another_rank_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(monkeypatch, {2: ("no memory", "Buy some.")})
    with pytest.raises(SaveError) as caught:
        others.ranks.together(lambda: 5, SaveError)
    assert (caught.value.what, caught.value.remedy) == ("rank 2: no memory", "Buy some.")
    with pytest.raises(LoadError, match=r"^not there\. Look elsewhere\.$"):
        Others(monkeypatch, {0: [None, ("not there", "Look elsewhere.")]}).ranks.from_first(lambda: None, LoadError)


def test_this_rank_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SaveError, match=r"^rank 1: ValueError: bad$") as caught:
        Others(monkeypatch, {}).ranks.together(_raises(ValueError("bad")), SaveError)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(KeyboardInterrupt):
        Others(monkeypatch, {}).ranks.together(_raises(KeyboardInterrupt()), SaveError)


def test_all_failed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = dict.fromkeys((0, 2, 3), ("it does not fit", ""))
    with pytest.raises(LoadError, match=r"^it does not fit$"):
        Others(monkeypatch, alike).ranks.together(_raises(LoadError("it does not fit")), LoadError)


def test_a_rank_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Others(monkeypatch, {}, lost="[/src/gloo/pair.cc:55] Connection closed by peer [127.0.0.1]:5").ranks
    for ask, given in ((lost.share, 1), (lost.together, lambda: 1), (lost.from_first, lambda: 1)):
        with pytest.raises(SaveError, match=r"^not every rank answers: Connection closed by peer \[127"):
            ask(given, SaveError)  # type: ignore[operator]


def test_alone() -> None:
    ranks = Ranks(None)
    assert (ranks.rank, ranks.count) == (0, 1)
    assert ranks.share(3, SaveError) == [3] and ranks.together(lambda: 4, SaveError) == 4 and ranks.from_first(lambda: 5, SaveError) == 5
    for ask in (ranks.together, ranks.from_first):
        with pytest.raises(SaveError, match=r"^No space left on device: a$"):
            ask(_raises(OSError(28, "No space left on device", "a")), SaveError)


def test_what_torch_says() -> None:
    """Its own exception is no Exception, and wraps those of the ranks."""
    error = CheckpointException("write", {3: (OSError(28, "No space left on device"), None), 1: (ValueError("a\nb"), None)})  # type: ignore[dict-item]
    assert not isinstance(error, Exception)
    assert said(error) == "rank 1: ValueError: b; rank 3: No space left on device"
    with pytest.raises(SaveError, match=r"^rank 1: ValueError: b; rank 3: No space"):
        Ranks(None).together(_raises(error), SaveError)
    assert said(RuntimeError("x" * 1000)) == "x" * 300 and said(RuntimeError()) == "RuntimeError: "
