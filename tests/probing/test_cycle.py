"""Which step a training is in: told calls in the order in which trainings make them. No torch."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

from fullstep.probing.cycle import Cycle, Part, Step


class _Tick:
    """A moment of a clock that goes on by a second whenever it is read."""

    def __init__(self, at: int, *, is_past: bool = True) -> None:
        self.at, self.is_past = at, is_past

    def since(self, earlier: Any) -> float:
        return float(self.at - earlier.at)


class _Training:
    def __init__(self, *, is_past: bool = True) -> None:
        self.steps: list[Step] = []
        self.beside: list[tuple[Part, float | None]] = []
        stretches, ticks = count(), count()
        self.cycle = Cycle(
            lambda: {"device": [next(stretches)]}, lambda: _Tick(next(ticks), is_past=is_past), self.steps.append,
            lambda part, seconds: self.beside.append((part, seconds)),
        )  # fmt: skip

    def backward(self, times: int = 1) -> None:
        for _ in range(times):
            self.cycle.backward_begins()
            self.cycle.backward_ends()

    def optimizers(self, *which: int) -> None:
        for each in which:
            self.cycle.optimizer_begins(each)
            self.cycle.optimizer_ends()

    def phases(self) -> list[list[tuple[int, str]]]:
        return [[(part.micro_batch, part.phase) for part in step.parts] for step in self.steps]


def test_one_optimizer_and_micro_batches() -> None:
    seen = _Training()
    for _ in range(3):
        seen.backward(2)
        seen.optimizers(1)
    seen.cycle.finish()
    rest = [(1, "backward"), (2, "forward"), (2, "backward"), (0, "optimizer_step")]
    assert seen.phases() == [[(1, "load_and_forward"), *rest], [(1, "forward"), *rest], [(1, "forward"), *rest]]
    assert [(step.number, step.seconds, step.is_alike) for step in seen.steps] == [(1, None, True), (2, 1.0, True), (3, 1.0, True)]


def test_every_stretch_is_told_once_and_in_order() -> None:
    seen = _Training()
    for _ in range(4):
        seen.backward(3)
        seen.optimizers(1, 2)
    seen.cycle.finish()
    told = [part.figures["device"][0] for step in seen.steps for part in step.parts]
    assert told == list(range(4 * (3 * 2 + 2)))


def test_two_optimizers_make_one_step() -> None:
    seen = _Training()
    for _ in range(3):
        seen.backward()
        seen.optimizers(1, 2)
    assert seen.cycle.made == 3
    seen.cycle.finish()
    assert [step.number for step in seen.steps] == [1, 2, 3]
    assert seen.phases()[1] == [(1, "forward"), (1, "backward"), (0, "optimizer_step"), (0, "optimizer_step")]


def test_an_optimizer_that_is_called_once_for_each_group_of_parameters() -> None:
    seen = _Training()
    for _ in range(3):
        seen.backward()
        seen.optimizers(1, 1, 1)
    seen.cycle.finish()
    assert [step.number for step in seen.steps] == [1, 2, 3]


def test_two_networks_that_train_in_turn() -> None:
    seen = _Training()
    for _ in range(3):
        for which in (1, 2):
            seen.backward()
            seen.optimizers(which)
    seen.cycle.finish()
    assert [step.number for step in seen.steps] == [1, 2, 3]
    assert all(step.is_alike for step in seen.steps)
    first, second = ([(number, "forward"), (number, "backward"), (0, "optimizer_step")] for number in (1, 2))
    assert seen.phases()[2] == first + second


def test_optimizers_inside_of_backward() -> None:
    seen = _Training()
    for _ in range(3):
        seen.cycle.backward_begins()
        seen.optimizers(3, 2, 1)
        seen.cycle.backward_ends()
    seen.cycle.finish()
    assert [step.number for step in seen.steps] == [1, 2, 3]
    assert seen.phases()[2] == [(1, "forward"), (1, "backward")]


def test_backward_inside_of_an_optimizer_is_a_part_of_its_step() -> None:
    seen = _Training()
    for _ in range(3):
        seen.backward()
        seen.cycle.optimizer_begins(1)
        seen.backward(4)
        seen.cycle.optimizer_ends()
    seen.cycle.finish()
    assert seen.phases()[1] == [(1, "forward"), (1, "backward"), (0, "optimizer_step")]


def test_gradients_that_come_without_backward() -> None:
    seen = _Training()
    for _ in range(3):
        seen.optimizers(1)
    seen.cycle.finish()
    assert seen.phases() == [[(1, "load_and_forward"), (0, "optimizer_step")]] + 2 * [[(1, "forward_and_backward"), (0, "optimizer_step")]]


def test_an_optimizer_that_failed_does_not_stay_open() -> None:
    seen = _Training()
    seen.backward()

    def fails() -> None:
        seen.cycle.optimizer_begins(1, sys._getframe())

    fails()
    assert seen.cycle.at == (1, "optimizer_step")
    for _ in range(2):
        seen.backward()
        seen.optimizers(1)
    seen.cycle.finish()
    assert [step.number for step in seen.steps] == [1, 2]


def test_where_a_training_is() -> None:
    seen = _Training()
    assert seen.cycle.at == (1, "load_and_forward")
    seen.cycle.backward_begins()
    assert seen.cycle.at == (1, "backward")
    seen.cycle.backward_ends()
    assert seen.cycle.at == (1, "forward")
    seen.cycle.optimizer_begins(1)
    assert seen.cycle.at == (1, "optimizer_step")
    seen.cycle.optimizer_ends()
    assert seen.cycle.at == (2, "forward")


def test_a_step_is_over_at_once_but_for_a_device_that_has_to_be_waited_for() -> None:
    for is_past, there in ((True, 2), (False, 1)):
        seen = _Training(is_past=is_past)
        for _ in range(2):
            seen.backward()
            seen.optimizers(1)
        assert (len(seen.steps), seen.cycle.made) == (there, 2)
        seen.backward()
        assert len(seen.steps) == 2


def test_what_goes_on_between_steps_is_no_part_of_them() -> None:
    seen = _Training()
    seen.cycle.ended("load")
    seen.cycle.loaded = True
    for _ in range(3):
        seen.backward()
        seen.optimizers(1)
        seen.cycle.ended("evaluation")
        seen.cycle.ended("save")
    assert [(part.phase, seconds) for part, seconds in seen.beside][:3] == [("load", None), ("evaluation", 1.0), ("save", 1.0)]
    seen.cycle.finish()
    assert [step.seconds for step in seen.steps] == [1.0, 1.0, 1.0]
    assert seen.phases()[0][0] == (1, "forward")


def test_waiting_for_data_is_of_the_step_that_it_is_for() -> None:
    seen = _Training()
    for number in range(3):
        seen.cycle.waited(float(number))
        seen.backward()
        seen.optimizers(1)
    seen.cycle.finish()
    assert [step.data_seconds for step in seen.steps] == [0.0, 1.0, 2.0]


def test_an_optimizer_that_steps_more_often_than_another_makes_no_cycle() -> None:
    seen = _Training()
    for _ in range(3):
        for each in (1, 1, 1, 2):
            seen.backward()
            seen.optimizers(each)
    seen.cycle.finish()
    assert not all(step.is_alike for step in seen.steps[:-1])
