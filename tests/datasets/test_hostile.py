"""Files that are cut off, damaged, of another format, or made to hurt: a fault with its place, never a crash or a wait."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fullstep.datasets import byte_counter, measure_lengths, open_tables, raw_file
from fullstep.datasets import table as table_room
from fullstep.errors import InputError

JUNK = random.Random(5).randbytes(4000)
GOOD = b'{"text": "abc"}\n'


def refused(*paths: object) -> str:
    with pytest.raises(InputError) as error:
        measure_lengths(open_tables(list(map(str, paths))), byte_counter(), None)
    return str(error.value)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "tsv", "parquet", "arrow", "jsonl.gz", "csv.gz"])
@pytest.mark.parametrize("content", [JUNK, b"", b"\0" * 100], ids=["junk", "empty", "zeros"])
def test_of_another_format(suffix: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_bytes(content)
    assert f"a.{suffix}" in refused(tmp_path / f"a.{suffix}")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b'{"text": "abc"', "no JSON"),
        (b'{"text": "abc"} {"text": "d"}', "no JSON: Extra data"),
        (b"{'text': 'abc'}", "no JSON"),
        (b"[1, 2]", "a list"),
        (b"NaN", "a number"),
        (b"null", "null"),
        (b'"abc"', "a text"),
        (b'{"text": "\xff"}', "no UTF-8 text (byte 11)"),
        (b'{"text": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"text": ' + b"9" * 5000 + b"}", "no JSON that can be read"),
        (b'{"text": 7}', "text: 7"),
        (b'{"test": "abc"}', 'Did you mean "test"?'),
    ],
)
def test_a_line_at_fault(line: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + line + b"\n" + GOOD)
    message = refused(path)
    assert word in message and message.startswith(f"{path}:2: ")


def test_faults_are_gathered_but_not_without_end(tmp_path: Path) -> None:
    (tmp_path / "few.jsonl").write_bytes((GOOD + b"x\n") * 3)
    assert [line.split(": ")[0].rsplit(":", 1)[1] for line in refused(tmp_path / "few.jsonl").splitlines()] == ["2", "4", "6"]
    (tmp_path / "many.jsonl").write_bytes(GOOD + b"x\n" * 1000)
    assert len(refused(tmp_path / "many.jsonl").splitlines()) == 10


def test_an_object_over_several_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"text": "abc"}, indent=2))
    assert "has to stand in an array" in refused(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[{"text": "a"}, {"text": "b"}', "the file ends before its array does"),
        ('[{"text": "a"}, {"text": "b', "the file ends before its array does"),
        ("[", "the file ends before its array does"),
        ('[{"text": "a"}]\n[{"text": "b"}]', "more text after the array's ]"),
        ('[{"text": "a"}] and so on', "more text after the array's ]"),
        ('[{"text": "a"},]', "Illegal trailing comma"),
        ('[{"text": "a"} {"text": "b"}]', "row 2: no JSON: Expecting ',' delimiter"),
        ('[{"text": "a"}, {"text" "b"}' + ', {"text": "c"}' * 9 + "]", "row 2: no JSON"),
        ('[{"text": "a"}, 5]', "row 2: a number"),
        ('[{"text": ' + "[" * 100_000, "nested too deeply"),
        ("[]", "no row"),
    ],
)
def test_an_array_at_fault(text: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert word in refused(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("text,id\na\n", "a.csv:2: 1 field; allowed: 2"),
        ("text,id\na,b\nc,d,e\n", "a.csv:3: 3 fields"),
        ('text,id\n"a,b\nc\n', "no CSV"),
        ("text,text\na,b\n", "stands twice"),
        ("text,id\n", "no row"),
    ],
)
def test_a_table_at_fault(text: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert word in refused(tmp_path / "a.csv")


def test_a_row_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_file, "LARGEST_ROW_BYTES", 1000)
    (tmp_path / "a.jsonl").write_bytes(GOOD + b'{"text": "' + b"a" * 2000)
    assert "a.jsonl:2: a row of more than" in refused(tmp_path / "a.jsonl")
    assert raw_file.LARGEST_ROW_BYTES != table_room.LARGEST_ROW_BYTES == 64 * 2**20


@pytest.mark.parametrize("cut", [5, 30, 100])
def test_packed_and_cut_off(cut: int, tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b'{"text": "%d"}\n' % number for number in range(5000)))
    (tmp_path / "a.jsonl.gz").write_bytes(packed[:-cut])
    assert "cannot be read" in refused(tmp_path / "a.jsonl.gz")
    (tmp_path / "b.jsonl.gz").write_bytes(packed[:200] + bytes(cut) + packed[200 + cut :])
    assert "b.jsonl.gz" in refused(tmp_path / "b.jsonl.gz")


def columns_of_text(rows: int) -> pa.Table:
    return pa.table({"text": [f"row {number} " * 5 for number in range(rows)]})


def test_damaged_parquet(tmp_path: Path) -> None:
    pq.write_table(columns_of_text(500), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    for number, damaged in enumerate((whole[:-20], whole[:50], whole[:40] + b"\xff" * 200 + whole[240:])):
        (tmp_path / f"{number}.parquet").write_bytes(damaged)
        assert f"{number}.parquet: cannot be read" in refused(tmp_path / f"{number}.parquet")


def test_damaged_arrow(tmp_path: Path) -> None:
    """Also offsets that lead out of the file, which unchecked would end the process."""
    table = columns_of_text(50)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    whole = (tmp_path / "a.arrow").read_bytes()
    offsets = whole.index((30).to_bytes(4, "little") + (60).to_bytes(4, "little"))
    for number, damaged in enumerate((whole[:200], whole[:-400], whole[:offsets] + b"\xff\xff\xff\x7f" + whole[offsets + 4 :])):
        (tmp_path / f"{number}.arrow").write_bytes(damaged)
        assert f"{number}.arrow: cannot be read" in refused(tmp_path / f"{number}.arrow")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "train.parquet").touch()
    message = refused(tmp_path / "a.jsonl", tmp_path, tmp_path / "none.jsonl", "zero\0byte", tmp_path / "train.parquet" / "x.jsonl")
    for word in (
        "a pipe, device or socket",
        "a folder without state.json",
        "train.parquet",
        "there is no such file",
        "null byte",
        "Not a dir",
    ):
        assert word in message


@pytest.mark.parametrize("name", ["a.pkl", "a.pt", "a", "a.parquet.gz", "a.jsnl"])
def test_formats_that_are_not_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(GOOD)
    message = refused(tmp_path / name)
    assert "save_to_disk" in message and ('Did you mean ".jsonl"?' in message) == (name == "a.jsnl")


def test_nothing_but_empty_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": null}\n')
    assert "2 rows, all empty" in refused(tmp_path / "a.jsonl")


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("fullstep.datasets.arrow_tables.find_spec", lambda _name: None)
    assert "pyarrow is not installed" in refused(tmp_path / "a.parquet")
    assert "pip install 'fullstep[data]'" in refused(tmp_path / "a.parquet")
