"""Every format: the same three rows come out, with the place where they begin."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fullstep.datasets import open_tables
from fullstep.datasets.table import Faults, Table
from fullstep.errors import InputError

ROWS = [{"text": "one", "id": 1}, {"text": "two\nlines, and more", "id": 2}, {"text": "drei ü", "id": 3}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CSV = 'text,id\none,1\n"two\nlines, and more",2\ndrei ü,3\n'


def in_arrow() -> pa.Table:
    return pa.Table.from_pylist(ROWS)


def write_stream(path: Path, table: pa.Table | None = None) -> None:
    table = in_arrow() if table is None else table
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def write_arrow_file(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, in_arrow().schema) as writer:
        writer.write_table(in_arrow(), max_chunksize=2)


FORMATS: dict[str, tuple[Callable[[Path], object], list[int]]] = {
    "a.jsonl": (lambda path: path.write_bytes(LINES), [1, 2, 3]),
    "a.ndjson": (lambda path: path.write_bytes(b"\xef\xbb\xbf\n" + LINES.replace(b"\n", b"\r\n\r\n")), [2, 4, 6]),
    "lines.json": (lambda path: path.write_bytes(LINES), [1, 2, 3]),
    "array.json": (lambda path: path.write_text(json.dumps(ROWS, indent=2), encoding="utf-8"), [1, 2, 3]),
    "tight.json": (lambda path: path.write_text(" [" + LINES.decode().strip().replace("\n", ",") + "]"), [1, 2, 3]),
    "a.jsonl.gz": (lambda path: path.write_bytes(gzip.compress(LINES)), [1, 2, 3]),
    "a.json.gz": (lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS).encode())), [1, 2, 3]),
    "a.csv": (lambda path: path.write_text(CSV, encoding="utf-8"), [2, 3, 5]),
    "a.csv.gz": (lambda path: path.write_bytes(gzip.compress(CSV.encode())), [2, 3, 5]),
    "a.parquet": (lambda path: pq.write_table(in_arrow(), path, row_group_size=2), [1, 2, 3]),
    "a.arrow": (write_stream, [1, 2, 3]),
    "file.arrow": (write_arrow_file, [1, 2, 3]),
}


def read(table: Table, *columns: str) -> list[tuple[int, object]]:
    faults = Faults()
    rows = [(row.number, row.values[columns[0]]) for row in table.rows(columns, faults)]
    faults.raise_any()
    return rows


@pytest.mark.parametrize("name", FORMATS)
def test_formats(name: str, tmp_path: Path) -> None:
    write, numbers = FORMATS[name]
    write(tmp_path / name)
    [table] = open_tables([str(tmp_path / name)])
    assert table.columns() == ["text", "id"]
    assert read(table, "text") == list(zip(numbers, (row["text"] for row in ROWS), strict=True))


def test_tabs(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tid\na, b\t1\n")
    assert read(open_tables([str(tmp_path / "a.tsv")])[0], "text") == [(2, "a, b")]


def test_an_array_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    """Elements that lie across the pieces of a mebibyte, one of which is longer than two of them."""
    texts = ["é" * 700_000, "[{]}" * 700_000, '"\\' * 500_000, "end"]
    (tmp_path / "a.json").write_text(json.dumps([{"text": text} for text in texts], ensure_ascii=False), encoding="utf-8")
    assert [value for _, value in read(open_tables([str(tmp_path / "a.json")])[0], "text")] == texts


def test_only_the_columns_that_are_asked_for_leave_a_file_of_columns(tmp_path: Path) -> None:
    pq.write_table(in_arrow(), tmp_path / "a.parquet")
    [table] = open_tables([str(tmp_path / "a.parquet")])
    assert [row.values for row in table.rows(["id"], Faults())] == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_token_ids_are_counted_not_copied(tmp_path: Path) -> None:
    pq.write_table(pa.table({"input_ids": [[7, 8, 9], [], None]}), tmp_path / "a.parquet")
    assert read(open_tables([str(tmp_path / "a.parquet")])[0], "input_ids") == [(1, range(3)), (2, range(0)), (3, None)]


def save_to_disk(folder: Path, shards: int = 2) -> None:
    """The files that ``Dataset.save_to_disk`` of the library datasets writes."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{shards:05}.arrow" for number in range(shards)]
    for name in names:
        write_stream(folder / name)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names], "_fingerprint": "x"}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_folder_of_save_to_disk(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "set")
    tables = open_tables([str(tmp_path / "set")])
    assert [Path(table.name).name for table in tables] == ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert [len(read(table, "text")) for table in tables] == [3, 3]


def test_of_several_splits_train_is_taken(tmp_path: Path) -> None:
    for split in ("train", "test"):
        save_to_disk(tmp_path / "set" / split, shards=1)
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert [Path(table.name).parent.name for table in open_tables([str(tmp_path / "set")])] == ["train"]
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["dev", "test"]}')
    with pytest.raises(InputError, match="the splits dev, test"):
        open_tables([str(tmp_path / "set")])


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ('{"_data_files": [{"filename": "../secret.arrow"}]}', "no names of files"),
        ('{"_data_files": [{"filename": ".."}]}', "no names of files"),
        ('{"_data_files": [{"filename": ""}]}', "no names of files"),
        ('{"_data_files": 5}', "no names of files"),
        ("[]", "no names of files"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"_data_files": [{"filename": "gone.arrow"}]}', "gone.arrow"),
        ('{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}', "flatten_indices"),
    ],
)
def test_a_state_that_leads_nowhere(state: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(InputError, match=word):
        open_tables([str(tmp_path)])
