"""An estimate with records beside it: by way of ``fullstep estimate --evidence``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records_by_hand import keep, sheet

from fullstep.api.evidenced import estimate_with_evidence
from fullstep.cli import main
from fullstep.formats.probe_record import read_any, save
from fullstep.formats.probe_record.places import LocalFolder
from fullstep.job import complete, worksheet_from_mapping
from fullstep.physics import estimate_memory
from fullstep.quantities import MIB, Bounds


def estimate(capsys: pytest.CaptureFixture[str], tmp_path: Path, of: dict[str, Any], *more: str, code: int = 0) -> str:
    (tmp_path / "job.json").write_text(json.dumps(of))
    assert main(["estimate", str(tmp_path / "job.json"), *more]) == code
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_of_the_same_worksheet_the_measurement_replaces_the_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = keep(tmp_path / "evidence", 100 * MIB, of=sheet())
    answer = json.loads(estimate(capsys, tmp_path, sheet(), "--evidence", str(tmp_path / "evidence"), "--json"))
    memory = answer["memory"]
    assert memory["evidence"] == "measured"
    assert memory["allocated_peak_bytes"] == dict.fromkeys(("low", "likely", "high"), 100 * MIB)
    assert memory["reserved_peak_bytes"]["likely"] == 120 * MIB and memory["device_peak_bytes"]["high"] == 130 * MIB
    assert answer["step"]["evidence"] == "measured" and answer["step"]["seconds"]["likely"] == 2.0
    assert answer["records"]["used"][0]["match"] == "same"
    assert [each["key"] for each in answer["assumptions"] if name in each["why"]][:1] == ["measured.allocated_peak_gib"]


def test_what_the_worksheet_measured_itself_outranks_records(tmp_path: Path) -> None:
    keep(tmp_path, 100 * MIB, of=sheet())
    found = estimate_with_evidence(complete(worksheet_from_mapping(sheet(allocated_peak_gib=0.0625))), str(tmp_path))
    assert found.answer.memory.allocated_peak_bytes == Bounds.exact(64 * MIB)
    assert found.answer.memory.reserved_peak_bytes == Bounds.exact(120 * MIB)


def test_the_newest_record_counts_and_the_others_are_told(tmp_path: Path) -> None:
    keep(tmp_path, 300 * MIB, of=sheet(), day=1)
    newest = keep(tmp_path, 100 * MIB, of=sheet(), day=2)
    keep(tmp_path, 50 * MIB, of=sheet(), device="cpu", day=3)
    found = estimate_with_evidence(complete(worksheet_from_mapping(sheet())), str(tmp_path))
    assert found.answer.memory.allocated_peak_bytes.likely == 100 * MIB
    assert [each.name for each in found.used] == [newest] and len(found.refused) == 2


def test_a_near_record_narrows_within_the_bounds_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lies half way from likely to high in its own bounds: so does the new likely value, and half of the rest stays on each side."""
    own, here = (estimate_memory(complete(worksheet_from_mapping(sheet(rows)))).allocated for rows in (1, 4))
    name = keep(tmp_path / "evidence", (own.likely + own.high) / 2, of=sheet(1))
    options = ("--evidence", str(tmp_path / "evidence"))
    answer = json.loads(estimate(capsys, tmp_path, sheet(4), *options, "--json"))
    found = answer["memory"]["allocated_peak_bytes"]
    middle = (here.likely + here.high) / 2
    assert found["likely"] == pytest.approx(middle, abs=4)
    assert found["low"] == pytest.approx((middle + here.low) / 2, abs=4)
    assert found["high"] == pytest.approx((middle + here.high) / 2, abs=4)
    assert answer["memory"]["evidence"] == "estimated"
    assert any(each["key"] == "evidence.allocated" and name in each["why"] for each in answer["assumptions"])
    text = estimate(capsys, tmp_path, sheet(4), *options)
    assert f"{name} narrows the bounds" in " ".join(text.split()) and "rows are random" in text


def test_a_near_record_outside_of_its_own_bounds_narrows_nothing(tmp_path: Path) -> None:
    job = complete(worksheet_from_mapping(sheet(4)))
    keep(tmp_path, 1000 * MIB, of=sheet(1))
    found = estimate_with_evidence(job, str(tmp_path)).answer
    assert found.memory.allocated_peak_bytes == estimate_memory(job).allocated
    assert any(code == "F126" and "allocated lies outside" in text for code, text in found.warnings)


def test_processors_prove_no_room_on_a_card(tmp_path: Path) -> None:
    """30,000 rows do not fit an 80 GB card, and what ran on processors does not say that they do."""
    size = round(estimate_memory(complete(worksheet_from_mapping(sheet(30_000)))).allocated.likely) - 64 * MIB
    keep(tmp_path, size, of=sheet(30_000), device="cpu")
    answer = estimate_with_evidence(complete(worksheet_from_mapping(sheet(30_000))), str(tmp_path)).answer
    assert answer.memory.verdict == "does_not_fit" and answer.memory.evidence == "measured"
    assert answer.memory.allocated_peak_bytes == Bounds.exact(size + 64 * MIB)  # cuBLAS's workspaces beside it
    assert answer.timing is not None and answer.timing.step is not None and answer.timing.step.evidence == "estimated"


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_what_kernels_of_processors_alone_allocate_replaces_nothing(share: float, tmp_path: Path) -> None:
    """Attention of grouped keys in float32, norms under autocast: their kernels on processors hold less than a GPU's, or more."""
    job = complete(worksheet_from_mapping(sheet(1000)))
    plain = estimate_memory(job).allocated
    name = keep(tmp_path, share * plain.likely, of=sheet(1000), device="cpu")
    found = estimate_with_evidence(job, str(tmp_path))
    assert found.answer.memory.allocated_peak_bytes == plain
    ((refused, why),) = found.refused
    assert refused == name and "outside of what is estimated of GPUs" in why and "kernels of processors are others" in why


def test_figures_that_no_such_card_can_give_are_refused(tmp_path: Path) -> None:
    """100 GiB on a card of 79.65: the record of the day before counts."""
    good = keep(tmp_path, 100 * MIB, of=sheet(), day=1)
    bad = keep(tmp_path, 100 * 1024 * MIB, of=sheet(), day=2)
    found = estimate_with_evidence(complete(worksheet_from_mapping(sheet())), str(tmp_path))
    assert [each.name for each in found.used] == [good]
    assert found.refused[0][0] == bad and "on a card of 79.65 GiB" in found.refused[0][1]


def test_what_does_not_match_changes_nothing_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path / "evidence", 100 * MIB, of=sheet(), device="NVIDIA A30")
    (tmp_path / "evidence" / "bad.json").write_text("[]")
    text = " ".join(estimate(capsys, tmp_path, sheet(), "--evidence", str(tmp_path / "evidence")).split())
    plain = estimate(capsys, tmp_path, sheet())
    assert text.startswith(" ".join(plain.split()))
    assert "it ran on A30, not on H100-SXM" in text and "Not read bad.json" in text


def test_several_worksheets_and_a_place_that_is_not_there_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "one worksheet" in estimate(capsys, tmp_path, sheet(), str(tmp_path / "job.json"), "--evidence", str(tmp_path), code=2)
    assert "no such file" in estimate(capsys, tmp_path, sheet(), "--evidence", str(tmp_path / "nowhere"), code=2)


def test_a_record_beside_its_own_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is read once."""
    name = keep(tmp_path, 100 * MIB, of=sheet())
    read, reads = LocalFolder.read, []
    monkeypatch.setattr(LocalFolder, "read", lambda *asked: reads.append(asked[1]) or read(*asked))
    assert main(["evidence", "compare", str(tmp_path / name), "--json"]) == 0
    assert reads == [name]
    lines = json.loads(capsys.readouterr().out)["lines"]
    own = estimate_memory(complete(worksheet_from_mapping(sheet())))
    allocated = next(each for each in lines if (each["group"], each["what"]) == ("peaks", "allocated"))
    assert allocated["measured"] == 100 * MIB and allocated["estimated"]["likely"] == own.allocated.likely
    assert main(["evidence", "compare", str(tmp_path / name)]) == 0
    assert "between steps" in capsys.readouterr().out


def test_lines_of_a_note_stand_as_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = read_any(str(tmp_path / keep(tmp_path, 100 * MIB, of=sheet()))).probe
    assert stored is not None
    name = save(replace(stored, notes=("its output ended with:\nring 0\nring 1",)), str(tmp_path / "noted"))
    assert main(["evidence", "compare", str(tmp_path / "noted" / name)]) == 0
    assert "  Program        its output ended with:\n    | ring 0\n    | ring 1\n" in capsys.readouterr().out
    text = estimate(capsys, tmp_path, sheet(), "--evidence", str(tmp_path / "noted"))
    assert "its program: its output ended with:\n    | ring 0\n    | ring 1\n" in text
