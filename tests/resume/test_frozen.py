"""What does not train is in no checkpoint: whether it is still the same is looked at when one is saved and when one is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from alone import Alone
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from fullstep.resume import LoadError, SaveError
from fullstep.resume.frozen import Frozen
from fullstep.resume.ranks import Ranks

pytestmark = pytest.mark.real_classes


def _training(folder: Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> Alone:
    torch.manual_seed(seed)
    base = nn.Linear(8, 8, dtype=dtype).requires_grad_(False)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(50, 8, dtype=dtype), base, nn.Linear(8, 50, dtype=dtype))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    return Alone(folder, model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer))


def test_the_same_base(tmp_path: Path) -> None:
    saved = _training(tmp_path).saved()
    again = _training(tmp_path)
    assert again.resume() == 1 and again.digests() == saved
    again.saved()


def test_another_base(tmp_path: Path) -> None:
    _training(tmp_path).saved()
    again = _training(tmp_path, seed=2)
    before = again.model.get_parameter("0.weight").clone()
    with pytest.raises(LoadError, match="parameters that do not train are not those with which it was saved"):
        again.resume()
    assert torch.equal(again.model.get_parameter("0.weight"), before)


def test_a_base_of_one_bit_more(tmp_path: Path) -> None:
    _training(tmp_path).saved()
    again = _training(tmp_path)
    again.model.get_parameter("1.weight").data.view(torch.int32)[3, 3] ^= 1
    with pytest.raises(LoadError, match="parameters that do not train"):
        again.resume()


def test_a_base_that_changes_while_training(tmp_path: Path) -> None:
    """A teacher that follows the student: it would be the untrained one after a restart, and nobody would know."""
    training = _training(tmp_path)
    training.saved()
    training.model.get_parameter("1.weight").data.mul_(0.9)
    training.train()
    with pytest.raises(SaveError, match=r"have changed, and checkpoints do not hold them: 1\.weight\. Give the module"):
        training.save()


def test_what_follows_a_teacher_is_saved_as_an_extra(tmp_path: Path) -> None:
    def with_teacher() -> Alone:
        teacher = nn.Linear(8, 8)
        return Alone(tmp_path, extra={"teacher": teacher})

    training = with_teacher()
    teacher = training.checkpoints._state.parts["teacher"]
    teacher.weight.data.fill_(0.5)
    training.saved()
    again = with_teacher()
    assert again.resume() == 1
    assert torch.equal(again.checkpoints._state.parts["teacher"].weight, teacher.weight)


def test_all_of_it_trains(tmp_path: Path) -> None:
    assert Frozen(nn.Linear(2, 2), Ranks(None)).fingerprint() == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.complex128])
def test_of_any_dtype(dtype: torch.dtype) -> None:
    model = nn.Linear(3, 3, dtype=dtype).requires_grad_(False)
    (before,) = Frozen(model, Ranks(None)).fingerprint()
    assert Frozen(model, Ranks(None)).fingerprint() == (before,)
    model.weight[1, 1] += 1
    assert Frozen(model, Ranks(None)).fingerprint() != (before,)


def test_a_base_on_the_meta_device() -> None:
    with pytest.raises(SaveError, match="does not train is on the meta device"):
        Frozen(nn.Linear(2, 2, device="meta").requires_grad_(False), Ranks(None)).fingerprint()


class _Four:
    """Four ranks, of which each has its turn; what they share is what all of them have."""

    count = 4

    def __init__(self) -> None:
        self.everywhere: list[Any] = []

    def together(self, act: Any, _: Any) -> Any:
        return act()

    def share(self, mine: Any, _: Any) -> list[Any]:
        self.everywhere.append(mine)
        return self.everywhere if len(self.everywhere) == self.count else [mine]


class _Holds(nn.Module):
    """A model of one weight, as it is: making a parameter of it, torch would remember the place of the rank before in its mesh."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self._only = weight

    def named_parameters(self, *_: Any, **__: Any) -> Any:
        """It alone."""
        yield "weight", self._only


@pytest.fixture(name="fake_ranks")
def _fake_ranks() -> Any:
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    yield lambda rank: torch.distributed.init_process_group("fake", rank=rank, world_size=4, store=FakeStore())
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("rows", [8, 6, 3])
@pytest.mark.parametrize("copies", [1, 2])
def test_however_it_is_divided(fake_ranks: Any, rows: int, copies: int) -> None:
    """Two copies, each in two shards, and four shards have the fingerprint of the whole, also where ranks have unequal shares."""
    whole = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0))
    alone = Frozen(_Holds(whole), Ranks(None)).fingerprint()
    four = _Four()
    for rank in range(4):
        fake_ranks(rank)
        mesh = init_device_mesh("cpu", (copies, 4 // copies))
        share = distribute_tensor(whole, mesh, [Replicate(), Shard(0)], src_data_rank=None)
        found = Frozen(_Holds(share), four).fingerprint()  # type: ignore[arg-type]
        torch.distributed.destroy_process_group()
    assert found == alone


def test_one_rank_with_another_base() -> None:
    """The others are as they were, and the same number of ranks saved it; of other numbers shards without a common form say nothing."""

    class Two:
        count = 2

        def __init__(self, other: nn.Module) -> None:
            self.other = other

        def together(self, act: Any, _: Any) -> Any:
            return act()

        def share(self, mine: Any, _: Any) -> list[Any]:
            return [mine, Frozen(self.other, Ranks(None))._bits()]

    torch.manual_seed(0)
    base, other = (nn.Linear(2, 2).requires_grad_(False) for _ in range(2))
    saved = Frozen(base, Two(base)).fingerprint()  # type: ignore[arg-type]
    assert len(saved) == 1
    Frozen(base, Two(base)).require(saved, 2)  # type: ignore[arg-type]
    with pytest.raises(LoadError, match="parameters that do not train"):
        Frozen(base, Two(other)).require(saved, 2)  # type: ignore[arg-type]
    Frozen(base, Two(other)).require(saved, 1)  # type: ignore[arg-type]
