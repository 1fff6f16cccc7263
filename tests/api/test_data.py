"""A data set from its file to the keys of a worksheet, with numbers by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fullstep.api import estimate, profile_data, worksheet_from_mapping
from fullstep.datasets import DataProfile
from fullstep.job import Worksheet

LENGTHS = [100, 300, 50, 250, 1000, 300]


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    """Rows of token ids, of which nothing has to be estimated, and one that is empty."""
    path = tmp_path / "ids.jsonl"
    rows = [{"input_ids": [1] * length} for length in [*LENGTHS, 0]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_by_hand(ids: Path) -> None:
    found = profile_data([ids], sequence_tokens=400, micro_batch=2)
    assert (found.rows, found.empty_rows, found.tokens, found.evidence) == (6, 1, (2000, 2000, 2000), "measured")
    assert (found.mean, found.median, found.p90, found.longest) == (pytest.approx(2000 / 6), 250, 1000, 1000)
    assert found.longest_at == f"{ids}:5" and found.assumptions == ()
    assert found.histogram == ((64, 1), (128, 1), (256, 1), (512, 2), (1024, 1))
    assert found.cut == (1, 600)
    assert found.padding.in_order_share == pytest.approx(1 - 1400 / (600 + 500 + 800))
    assert found.padding.to_sequence_share == pytest.approx(1 - 1400 / 2400)
    assert found.packing.cut_rows == 5  # 2000 / 400
    assert found.packing.whole_rows == 4  # 400 | 300 100 | 300 50 | 250
    assert found.packing.whole_filled_share == pytest.approx(1400 / 1600)
    assert (found.packing.cut_saves_share, found.packing.whole_saves_share) == (pytest.approx(1 / 6), pytest.approx(2 / 6))


def test_shuffled_padding_and_the_mean_row_belong_together(ids: Path) -> None:
    padding = profile_data([ids], sequence_tokens=400, micro_batch=2).padding
    assert padding.mean_row_tokens * (1 - padding.shuffled_share) == pytest.approx(1400 / 6)


def steps(profile: DataProfile, keys: dict[str, object]) -> int:
    mapping: dict[str, dict[str, object]] = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": {"gpu": "H200-SXM"}}
    for dotted, value in keys.items():
        section, key = dotted.split(".")
        mapping.setdefault(section, {})[key] = value
    worksheet: Worksheet = worksheet_from_mapping({**mapping, "method": {"kind": "lora"}})
    answer = estimate(worksheet)
    assert answer.timing is not None and answer.timing.run is not None
    return answer.timing.run.optimizer_steps


def test_the_keys_make_the_steps_of_a_worksheet(ids: Path) -> None:
    """One row a step: as many steps as rows."""
    found = profile_data([ids], sequence_tokens=400)
    assert found.packed_keys == {"data.tokens": 2000, "batch.packed": True, "batch.sequence_tokens": 400}
    assert steps(found, found.packed_keys) == found.packing.cut_rows
    assert found.padded_keys["batch.mean_sample_tokens"] == pytest.approx(1400 / 6, abs=0.01)
    assert steps(found, found.padded_keys) == found.rows


def test_padded_rows_are_no_longer_than_the_longest(ids: Path) -> None:
    assert profile_data([ids], sequence_tokens=4096).padded_keys["batch.sequence_tokens"] == 1000


def test_several_files_of_several_forms(ids: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("text\n" + "x" * 10_000 + "\n")
    found = profile_data([ids, str(tmp_path / "b.csv")])
    assert found.forms == ("token ids (input_ids)", "text (text)")
    assert found.rows == 7 and found.evidence == "estimated"
    assert found.longest_at == f"{tmp_path / 'b.csv'}:2" and found.longest == 2541
    assert found.tokens.low == pytest.approx(2000 + 2270 + 1) and found.tokens.high == pytest.approx(2000 + 4260 + 1)


def test_every_guess_is_listed(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": "Hi"}]}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    keys = [assumption.key for assumption in profile_data([tmp_path / "a.json"]).assumptions]
    assert keys == ["tokens_per_byte", "tokens_per_message", "batch.sequence_tokens", "batch.micro_batch"]
    (tmp_path / "b.json").write_text('[{"text": "Hi"}]')
    assert [a.key for a in profile_data([tmp_path / "b.json"], sequence_tokens=9, micro_batch=1).assumptions] == [
        "tokens_per_byte",
        "tokens_per_row_end",
    ]


def test_progress_is_told(ids: Path) -> None:
    told: list[str] = []
    profile_data([ids], progress=told.append)
    assert told and told[-1].endswith("6 rows")
