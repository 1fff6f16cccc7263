"""Folders against a model: which is the newest whole one, what is claimed, and what goes."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.resume import LoadError, Manifest, SaveError, checkpoints_in
from fullstep.resume.folders import claim_folder, folder_name, make_room
from fullstep.resume.manifest import write_manifest
from fullstep.resume.places import LocalPlace, Place

WHAT = st.sampled_from(["complete", "killed", "damaged", "killed before older ones went"])
EVENTS = st.lists(st.tuples(st.integers(1, 6), WHAT), min_size=1, max_size=9)


def _complete(place: Place, name: str, step: int) -> None:
    write_manifest(place, name, Manifest(step=step, ranks=1, parts=(), files={}))


@settings(max_examples=40, deadline=None)
@given(events=EVENTS, keep=st.integers(1, 3))
def test_against_a_model(events: list[tuple[int, str]], keep: int) -> None:
    """Saves of any steps in any order, as runs that are resumed make them; the model is a list of (step, attempt, state)."""
    with TemporaryDirectory() as root:
        place = LocalPlace(root)
        model: list[tuple[int, int, str]] = []
        damaged: set[str] = set()
        for step, what in events:
            name = claim_folder(place, step)
            attempt = max((each[1] for each in model if each[0] == step), default=-1) + 1
            assert name == folder_name(step, attempt)
            if what != "killed":
                _complete(place, name, step)
            (damaged.add if what == "damaged" else damaged.discard)(name)
            model.append((step, attempt, {"killed": "killed", "damaged": "damaged"}.get(what, "whole")))
            if what == "complete":
                gone = make_room(place, keep, name, damaged)
                older = sorted(each for each in model if each[:2] < (step, attempt))
                stay = [each for each in older if each[2] == "whole"][::-1][: keep - 1]
                model = [each for each in model if each[:2] >= (step, attempt) or each in stay]
                assert sorted(gone) == sorted(folder_name(*each[:2]) for each in older if each not in stay)
            found = [(each.step, each.attempt, each.manifest is not None) for each in checkpoints_in(place)]
            assert found == [(each[0], each[1], each[2] != "killed") for each in sorted(model, reverse=True)]


def test_only_what_is_complete_makes_room(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    for step in (1, 2):
        _complete(place, claim_folder(place, step), step)
    claim_folder(place, 3)
    assert make_room(place, 1, "step-00000003") == [] and make_room(place, 1, "step-00000009") == []
    assert len(place.names()) == 3


def test_others_may_claim_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalPlace(tmp_path)
    for attempt in range(3):
        place.claim(folder_name(7, attempt))
    monkeypatch.setattr(LocalPlace, "names", lambda _: [])  # they came after the look
    assert claim_folder(place, 7) == "step-00000007.3"
    monkeypatch.setattr(LocalPlace, "claim", lambda *_, **__: False)
    with pytest.raises(SaveError, match=r"step-00000007\.99 is there"):
        claim_folder(place, 7)


def test_why_a_folder_does_not_count(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    _complete(place, claim_folder(place, 1), 1)
    _complete(place, claim_folder(place, 2), 3)
    claim_folder(place, 4)
    why = {each.folder: str(each.why or "") for each in checkpoints_in(tmp_path)}
    assert why["step-00000001"] == ""
    assert why["step-00000002"] == f"{tmp_path}/step-00000002 holds step 3: it was renamed"
    assert why["step-00000004"].startswith(f"{tmp_path}/step-00000004 has no fullstep.json: it was not completed")


def test_names(tmp_path: Path) -> None:
    for name in ("step-1", "step-0000000x", "xstep-00000001", "step-00000001.x", "step-00000001.", "checkpoint-00000001"):
        (tmp_path / name).mkdir()
    assert checkpoints_in(tmp_path) == []
    (tmp_path / "step-1234567890.12").mkdir()
    assert [(each.step, each.attempt) for each in checkpoints_in(tmp_path)] == [(1234567890, 12)]


def test_a_place_that_cannot_be_looked_into(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LoadError, match=r"file cannot be looked into: Not a directory"):
        checkpoints_in(tmp_path / "file")
    assert checkpoints_in(tmp_path / "nothing") == []
