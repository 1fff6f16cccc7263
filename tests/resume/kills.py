"""A training that is killed again and again in the middle of its saves, and goes on each time as if nothing had happened.

The moment is drawn by what lies in the new folder, not by the clock: so it falls inside the save on a machine that is slow as well.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from processes import DEADLINE_SECONDS, Event, Nursery, Training

from fullstep.resume.folders import Found, checkpoints_in
from fullstep.resume.manifest import MANIFEST, flaws_of_files
from fullstep.resume.places import Place

SAVE_EVERY = 2
SLOW = {"slow_write": 0.001, "slow_manifest": 0.1, "slow_room": 0.1}
_MOMENTS = {"at its beginning": 1, "by bytes": 8, "before its manifest": 2, "before older ones go": 1}
"""how often each is drawn"""


class Truth(NamedTuple):
    """The training that nobody interrupts, by step."""

    digests: dict[int, str]
    losses: dict[int, float]

    @staticmethod
    def of(nursery: Nursery, folder: Path, *given: str, steps: int, ranks: int = 2) -> Truth:
        """Without any save."""
        training = nursery.start(folder, *given, "--steps", steps, "--save-every", 10**6, "--digest-every", 1, "--no-save", ranks=ranks)
        assert set(training.ended()) == {0}, training.text()
        events = training.events()
        digests = {each["step"]: each["digest"] for each in events if "digest" in each}
        return Truth(digests, {each["step"]: each["loss"] for each in events if "loss" in each})


class Kills:
    """Lives of one training.

    Args:
        nursery: where they begin
        folder: of the checkpoints
        given: the same for each life: mode, layout
        truth: what it has to be
        seed: of the moments
        ranks: that train
        spawns: see Nursery.start
    """

    def __init__(
        self, nursery: Nursery, folder: Path, given: tuple[str, ...], *, truth: Truth, seed: int, ranks: int = 2, spawns: bool = False
    ) -> None:
        self._nursery, self._folder, self._given, self._truth, self._ranks, self._spawns = nursery, folder, given, truth, ranks, spawns
        self._chance = random.Random(seed)
        self.outcomes: Counter[str] = Counter()

    def go(self, kills: int, whom: Callable[[int], str] = lambda _: "trainers") -> None:
        """So many lives, each killed in a save, and one that ends well."""
        for number in range(kills):
            self._live_and_die(whom(number), waits=number % 3 == 2)
        self._end_well()

    def _live_and_die(self, whom: str, waits: bool) -> None:
        training = self._begin(10**6, SLOW)
        for _ in range(2 if self._newest() is None else self._chance.choice((1, 1, 2))):
            before = self._newest()
            saving = training.until(lambda event, known=before: event.get("saving") and event["step"] > (known.step if known else 0))
            moment = self._chance.choices([*_MOMENTS], [*_MOMENTS.values()])[0]
            if before is None:  # the first one may end
                self._wait(training, lambda: self._newest() is not None)
                continue
            self._wait(training, self._reached(saving["step"], before, moment))
        assert before is not None
        _kill(training, whom)
        if waits:
            self._nursery.wait_for_all()
        self._note(saving["step"], before, whom)
        self._check(training)

    def _begin(self, steps: int, faults: dict[str, float]) -> Training:
        at_least = self._newest()
        given = (self._folder, *self._given, "--save-every", SAVE_EVERY, "--steps", steps)
        training = self._nursery.start(*given, ranks=self._ranks, faults=faults, spawns=self._spawns)
        resumed = training.until(lambda event: "resumed" in event)
        if at_least is not None:
            assert resumed["resumed"] >= at_least.step  # an orphan may have saved a newer one meanwhile
            assert training.until(lambda event: "digest" in event)["digest"] == self._truth.digests[resumed["resumed"]]
        else:
            assert resumed["resumed"] == 0
        return training

    def _reached(self, step: int, before: Found, moment: str) -> Callable[[], bool]:
        """Whether the save of this step has come to the moment."""
        assert before.manifest is not None
        ends = time.monotonic() + self._chance.random() * 0.1
        if moment == "at its beginning":
            return lambda: time.monotonic() > ends
        if moment == "by bytes":
            enough = self._chance.random() * before.manifest.bytes
            return lambda: sum(path.stat().st_size for path in self._newest_folder(step).glob("*")) > enough
        name = ".metadata" if moment == "before its manifest" else MANIFEST
        seen: list[float] = []

        def reached() -> bool:
            if not seen and (self._newest_folder(step) / name).exists():
                seen.append(time.monotonic() + self._chance.random() * 0.1)
            return bool(seen) and time.monotonic() > seen[0]

        return reached

    def _newest_folder(self, step: int) -> Path:
        found = [each for each in checkpoints_in(self._folder) if each.step == step]
        return self._folder / found[0].folder if found else self._folder / "nothing"

    def _wait(self, training: Training, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                if reached():
                    return
            except FileNotFoundError:  # a file was renamed between two looks
                pass
            assert time.monotonic() < deadline, training.text()
            time.sleep(0.001)

    def _newest(self) -> Found | None:
        return next((each for each in checkpoints_in(self._folder) if each.manifest is not None), None)

    def _note(self, step: int, before: Found, whom: str) -> None:
        """What the kill has left; what was whole before is whole now."""
        found = checkpoints_in(self._folder)
        for each in found:
            if each.manifest is not None:
                assert flaws_of_files(Place.at(self._folder), each.folder, each.manifest) == []
        newest = next(each for each in found if each.manifest is not None)
        assert (newest.step, newest.attempt) >= (before.step, before.attempt)  # orphans of several lives may have saved the same step
        this = next((each for each in found if each.step == step), None)
        left = "no folder" if this is None else "an incomplete folder" if this.manifest is None else "a checkpoint"
        self.outcomes[f"{whom}: {left}"] += 1
        self.outcomes[left] += 1

    def _check(self, training: Training) -> None:
        wrong = [each for each in training.events() if "loss" in each and each["loss"] != self._truth.losses[each["step"]]]
        assert wrong == []

    def _end_well(self) -> None:
        self._nursery.wait_for_all()
        newest = self._newest()
        assert newest is not None
        last = newest.step + 2 * SAVE_EVERY
        self._given = (*self._given, "--mode", "sync")  # whoever wrote it
        training = self._begin(last, {})
        assert set(training.ended()) == {0}, training.text()
        self._check(training)
        digests: list[Event] = [event for event in training.events() if "digest" in event]
        assert {each["step"]: each["digest"] for each in digests} == {
            step: self._truth.digests[step] for step in range(newest.step, last + 1, SAVE_EVERY)
        }
        left = checkpoints_in(self._folder)
        assert [(each.step, each.manifest is not None) for each in left] == [(last, True), (last - SAVE_EVERY, True)]


def _kill(training: Training, whom: str) -> None:
    if whom == "tree":
        training.kill_tree()
    else:
        training.signal(signal.SIGKILL)
    training.ended()
