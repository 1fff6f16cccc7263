"""What a checkpoint holds of a training, bit for bit, and what does not fit it: an error, and nothing was changed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from alone import Alone
from torch import nn

from fullstep.resume import Checkpoints, DataOrder, LoadError

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]


class Counter:
    """A data loader that knows its place."""

    def __init__(self) -> None:
        self.place = 0

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def test_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Dropout, a rate that changes with each step, an epoch that ends in between; and random numbers of three libraries."""
    numpy: Any = pytest.importorskip("numpy")
    training = Alone(tmp_path)
    saved = training.saved(3)
    training.train(4)
    drawn = (torch.rand(2).tolist(), random.random(), numpy.random.rand(2).tolist())
    again = Alone(tmp_path)
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
    assert again.resume() == 3 and again.digests() == saved
    again.train(4)
    assert again.losses == training.losses[3:] and again.order.epoch == training.order.epoch == 1
    assert (torch.rand(2).tolist(), random.random(), numpy.random.rand(2).tolist()) == drawn


@pytest.mark.parametrize("part", ["scheduler", "rng", "moments", "loader"])
def test_what_is_left_out_on_purpose_shows(tmp_path: Path, part: str) -> None:
    training = Alone(tmp_path)
    saved = training.saved(3)
    again = Alone(tmp_path)
    again.train(1)  # so that nothing is as it was saved by chance
    assert again.checkpoints.load(without=(part,)) is not None
    differ = {name for name, digest in again.digests().items() if digest != saved[name]}
    expected = {"moments": {"optimizer"}}.get(part, {part})
    assert {name.partition(".")[0] for name in differ} == expected
    with pytest.raises(ValueError, match="allowed are scheduler, rng, moments, loader"):
        again.checkpoints.load(without=("weights",))


def _wider() -> dict[str, Any]:
    return {"width": 12}


def _bfloat16() -> dict[str, Any]:
    training = Alone("unused")
    model = training.model.to(torch.bfloat16)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}


def _deeper() -> dict[str, Any]:
    model = Alone("unused").model
    assert isinstance(model, nn.Sequential)
    model.append(nn.Linear(50, 50))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}


def _shallower() -> dict[str, Any]:
    model = nn.Sequential(*list(Alone("unused").model.children())[:2])
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}


def _momentum() -> dict[str, Any]:
    model = Alone("unused").model
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), momentum=0.9)}


NOT_FITTING: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "shape": (_wider, "model.0.weight is (50, 8) in it, and (50, 12) here"),
    "dtype": (_bfloat16, "model.0.weight is torch.float32 in it, and torch.bfloat16 here"),
    "a layer more": (_deeper, "model.4.weight is not in it"),
    "a layer less": (_shallower, "model.3.weight is in it, and this training has none"),
    "a scheduler less": (lambda: {"scheduler": None}, "scheduler is in it, and this training has none"),
    "a loader less": (lambda: {"loader": None}, "loader is in it, and this training has none"),
    "a part more": (lambda: {"extra": {"scaler": Counter()}}, "scaler is not in it"),
    "another optimizer": (_momentum, "optimizer.param_groups.0.momentum is not in it"),
}


@pytest.mark.parametrize("what", NOT_FITTING)
def test_what_does_not_fit(tmp_path: Path, what: str) -> None:
    Alone(tmp_path).saved()
    settings, why = NOT_FITTING[what]
    again = Alone(tmp_path, **settings())
    before = again.digests()
    with pytest.raises(LoadError) as caught:
        again.resume()
    assert "the checkpoint does not fit this training: " in str(caught.value) and str(caught.value).endswith("Nothing was changed.")
    assert why in str(caught.value)
    assert again.digests() == before
    assert again.optimizer is None or not again.optimizer.state


def test_an_order_of_other_data_is_not_taken_for_this_one(tmp_path: Path) -> None:
    Alone(tmp_path).saved()
    with pytest.raises(LoadError, match=r"the data was ordered by .*'rows': 20.* The model is overwritten in part"):
        Alone(tmp_path, loader=DataOrder(21, 4, seed=1)).resume()


def test_without_optimizer(tmp_path: Path) -> None:
    model = nn.Linear(3, 3)
    checkpoints = Checkpoints(tmp_path, model=model, signals=())
    checkpoints.save(1)
    other = nn.Linear(3, 3)
    assert Checkpoints(tmp_path, model=other, signals=()).resume() == 1
    assert torch.equal(other.weight, model.weight) and torch.equal(other.bias, model.bias)
    with pytest.raises(LoadError, match="is not in it"):
        Checkpoints(tmp_path, model=other, optimizer=torch.optim.AdamW(other.parameters()), signals=()).resume()


@pytest.mark.parametrize("kind", ["adamw", "sgd", "momentum", "adagrad", "nadam"])
def test_saving_before_the_first_step_does_not_touch_the_optimizer(tmp_path: Path, kind: str) -> None:
    """Torch gives it states for that, as if it had made a step: its corrections of bias would be those of the second one."""
    undisturbed, disturbed, resumed = (_with_optimizer(folder, kind) for folder in (tmp_path / "none", tmp_path / "one", tmp_path / "one"))
    disturbed.save()
    disturbed.digests()
    assert resumed.checkpoints.load() is not None
    for training in (undisturbed, disturbed, resumed):
        torch.manual_seed(3)
        training.train(3)
    assert undisturbed.losses == disturbed.losses == resumed.losses
    assert undisturbed.digests() == disturbed.digests() == resumed.digests()


def _with_optimizer(folder: Path, kind: str) -> Alone:
    model = Alone("unused").model
    kinds: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
        "adamw": torch.optim.AdamW, "sgd": lambda each: torch.optim.SGD(each, 0.1), "adagrad": torch.optim.Adagrad,
        "momentum": lambda each: torch.optim.SGD(each, 0.1, momentum=0.9), "nadam": torch.optim.NAdam,
    }  # fmt: skip
    optimizer = kinds[kind](model.parameters())
    return Alone(folder, model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer))


def _goes_on(built: Callable[[], Alone]) -> dict[str, str]:
    """What was saved comes back, and so do the steps after it."""
    training = built()
    saved = training.saved(2)
    training.train(2)
    after = training.digests()
    again = built()
    assert again.resume() == 2 and again.digests() == saved
    again.train(2)
    assert again.losses == training.losses[2:] and again.digests() == after
    return saved


@pytest.mark.parametrize("kind", ["adamw", "sgd", "momentum", "adagrad", "nadam"])
def test_every_optimizer_comes_back(tmp_path: Path, kind: str) -> None:
    _goes_on(lambda: _with_optimizer(tmp_path, kind))


def test_how_an_optimizer_computes_stays_as_the_new_process_has_it(tmp_path: Path) -> None:
    training = Alone(tmp_path)
    training.optimizer.param_groups[0].update(foreach=True, weight_decay=0.5)
    training.saved()
    again = Alone(tmp_path)
    assert again.optimizer.param_groups[0]["foreach"] is None and again.optimizer.param_groups[0]["weight_decay"] == 0.01
    again.resume()
    assert again.optimizer.param_groups[0]["foreach"] is None  # of the machine
    assert again.optimizer.param_groups[0]["weight_decay"] == 0.5  # of the training


class Adapter(nn.Module):
    """A frozen linear layer and what trains beside it, as LoRA has it."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.base = nn.Linear(inside, outside)
        self.down, self.up = nn.Linear(inside, 2, bias=False), nn.Linear(2, outside, bias=False)
        self.base.requires_grad_(False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Of both."""
        return self.base(rows) + self.up(self.down(rows))


def _adapted(folder: Path, seed: int) -> Alone:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(50, 8).requires_grad_(False), Adapter(8, 50))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    return Alone(folder, model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer))


def test_of_a_frozen_base_only_what_trains_is_saved(tmp_path: Path) -> None:
    training = _adapted(tmp_path, 1)
    saved = training.saved(2)
    assert {name for name in saved if name.startswith("model")} == {"model.1.down.weight", "model.1.up.weight"}
    again = _adapted(tmp_path, 1)
    torch.nn.init.zeros_(again.model.get_parameter("1.up.weight"))
    assert again.resume() == 2 and again.digests() == saved


def test_gradients_that_are_there_before_the_load(tmp_path: Path) -> None:
    """Torch gives an optimizer no states to fill then."""
    saved = Alone(tmp_path).saved(2)
    again = Alone(tmp_path)
    again.model.get_parameter("1.weight").grad = torch.ones(32, 8)
    assert again.resume() == 2 and again.digests() == saved
    assert torch.equal(again.model.get_parameter("1.weight").grad, torch.ones(32, 8))


def test_a_model_that_is_not_filled(tmp_path: Path) -> None:
    _adapted(tmp_path, 1).saved()
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(50, 8), Adapter(8, 50))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    again = Alone(tmp_path, model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer))
    with pytest.raises(LoadError, match=r"is on the meta device. Fill the model before"):
        again.resume()


def test_a_parameter_that_never_had_a_gradient(tmp_path: Path) -> None:
    """It has no states, and a new process whose optimizer has states for all of them goes on without."""
    saved = _goes_on(lambda: _unused(tmp_path))
    assert "model.spare.never" in saved and not any("spare" in name for name in saved if name.startswith("optimizer.state"))


def _unused(folder: Path) -> Alone:
    model = Alone("unused").model
    model.add_module("spare", nn.Identity())
    model.get_submodule("spare").register_parameter("never", nn.Parameter(torch.ones(3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return Alone(folder, model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer))


def test_tied_weights(tmp_path: Path) -> None:
    def tied() -> Alone:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50))
        model[1].weight = model[0].weight
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        return Alone(tmp_path, model=model, optimizer=optimizer, scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer))

    _goes_on(tied)


def test_a_digest_sees_all_of_a_state(tmp_path: Path) -> None:
    """Not what its text shows: torch writes the first and last three elements of a large tensor."""

    class Large(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.seen, self.order = torch.zeros(5000), {"nested": [numpy.zeros(5000), (1, 2.5, None)]}

        def state_dict(self) -> dict[str, Any]:
            return {"place": self.place, "seen": self.seen, "order": self.order}

    numpy: Any = pytest.importorskip("numpy")
    part = Large()
    checkpoints = Checkpoints(tmp_path, model=nn.Linear(2, 2), extra={"large": part}, signals=())
    torch.manual_seed(0)
    seen = [checkpoints.digests()]
    part.seen[2500] = 1
    seen.append(checkpoints.digests())
    part.order["nested"][0][2500] = 1
    seen.append(checkpoints.digests())
    assert len({each["large.rank0"] for each in seen}) == 3 and len({each["rng.rank0"] for each in seen}) == 1
    torch.rand(1)
    seen.append(checkpoints.digests())
    random.random()
    seen.append(checkpoints.digests())
    numpy.random.rand(1)
    assert len({each["rng.rank0"] for each in [*seen, checkpoints.digests()]}) == 4


def test_parts_of_ones_own(tmp_path: Path) -> None:
    scaler, loader = Counter(), Counter()
    model = nn.Linear(2, 2)
    checkpoints = Checkpoints(tmp_path, model=model, loader=loader, extra={"scaler": scaler}, signals=())
    scaler.place, loader.place = 3, 4
    checkpoints.save(1, note={"run": "a"})
    scaler.place = loader.place = 0
    assert checkpoints.resume() == 1 and (scaler.place, loader.place) == (3, 4)
    for name in ("rng", "model", "untouched"):
        with pytest.raises(ValueError, match="these names are taken"):
            Checkpoints(tmp_path, model=model, extra={name: scaler}, signals=())
    with pytest.raises(ValueError, match="a name has no dot"):
        Checkpoints(tmp_path, model=model, extra={"my.part": scaler}, signals=())
