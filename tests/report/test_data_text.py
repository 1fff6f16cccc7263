"""The report of a data set: what it says where numbers are nothing, tiny or the wrong way round."""

from __future__ import annotations

from pathlib import Path

from fullstep.api import profile_data
from fullstep.report.data_text import data_text
from fullstep.report.paper import Paper


def written(folder: Path, lengths: list[int], paper: Paper | None = None, **options: int) -> str:
    path = folder / "ids.jsonl"
    path.write_text("".join(f'{{"input_ids": {[1] * length}}}\n' for length in lengths))
    text = data_text(profile_data([path], **options), paper or Paper())  # type: ignore[arg-type]
    return " ".join(text.split()) if paper is None else text


def test_nothing_is_cut_off(tmp_path: Path) -> None:
    text = written(tmp_path, [5, 7], sequence_tokens=8)
    assert "Cut off nothing" in text and "none with one row a batch · 25.0 % up to 8" in text
    assert "Tokens 12 · counted: the rows hold token ids" in text


def test_long_documents_make_more_rows_when_nothing_is_lost(tmp_path: Path) -> None:
    text = written(tmp_path, [80, 80], sequence_tokens=8)
    assert "2 rows (100.0 %) longer; 144 tokens lost (90.0 %)" in text
    assert "20 rows one behind the other and cut, nothing lost: 10 times the steps of padded rows, which lose what is cut off" in text


def test_one_row(tmp_path: Path) -> None:
    assert "1 row · token ids" in written(tmp_path, [5], sequence_tokens=8)


def test_empty_rows_are_named(tmp_path: Path) -> None:
    assert "Empty 2 rows, left out here" in written(tmp_path, [5, 0, 0])


def test_narrow_ascii_paper(tmp_path: Path) -> None:
    text = written(tmp_path, list(range(1, 200)), Paper(width=80, unicode=False), micro_batch=4)
    folder_is_long = len(str(tmp_path)) > 60
    assert text.isascii() and (folder_is_long or max(map(len, text.splitlines())) <= 80)
    assert "#" * 40 in text
