"""What is said while the legs go by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.drill.front import drill
from fullstep.lab.drill.front.drill import Elsewhere, Wanted


@contextmanager
def _started(name: str, _ranks: int, _leg: Path, *_: object) -> Iterator[SimpleNamespace]:
    def wait_for_ranks(_seconds: float, say: Callable[[str], None]) -> None:
        say(f"{name[5:-1]}: step 1 of 7")  # name: leg "uninterrupted"
        say("without rng: step 4 of 7")

    yield SimpleNamespace(
        started_at=0.0, wait_for_ranks=wait_for_ranks, wait_for_end=lambda: None, family=SimpleNamespace(kill=lambda: 0.0)
    )


@pytest.mark.parametrize(("moves", "count"), [(False, 4), (True, 5)])
def test_which_leg_of_how_many_it_is(moves: bool, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drill, "started", _started)
    monkeypatch.setattr(drill, "read_records", lambda *_: [])
    monkeypatch.setattr(drill, "seen_of", lambda _: {})
    settings = settings_of(worksheet_from_mapping({"model": {"name": "gpt2"}}))
    wanted = Wanted(
        settings=settings, worksheet={}, config={}, model="gpt2", device="cpu", ranks=2, to=str(tmp_path), mode="sync",
        elsewhere=Elsewhere({}, settings, 1) if moves else None,
    )  # fmt: skip
    said: list[str] = []
    drill._go_all(drill._Legs(wanted, str(tmp_path), tmp_path, said.append))
    assert said[:3] == [
        f"leg 1 of {count}: uninterrupted: starting 2 ranks",
        f"leg 1 of {count}: uninterrupted: step 1 of 7",
        f"leg 1 of {count}: uninterrupted: without rng: step 4 of 7",
    ]
    assert f"leg 4 of {count}: controls: without rng: step 4 of 7" in said
    last = "elsewhere: starting 1 rank" if moves else "controls: starting 2 ranks"
    assert said[-3] == f"leg {count} of {count}: {last}"
