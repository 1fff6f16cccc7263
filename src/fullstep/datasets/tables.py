"""From paths to tables: the format goes by the suffix, a folder is one that ``save_to_disk`` of the library datasets wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fullstep.datasets.arrow_tables import Arrow, Parquet
from fullstep.datasets.csv_table import CsvTable
from fullstep.datasets.json_tables import JsonArray, JsonLines
from fullstep.datasets.raw_file import BYTE_ORDER_MARK, file_kind, opened, unreadable
from fullstep.datasets.table import Table
from fullstep.errors import Fault, InputError

_LARGEST_STATE_BYTES = 2**20
_SNIFFED_BYTES = 2**16


def _json(name: str) -> Table:
    """By its first sign: people call JSON Lines .json as well."""
    lines = JsonLines(name)
    with opened(lines) as (source, _):
        start = source.read(_SNIFFED_BYTES).removeprefix(BYTE_ORDER_MARK).lstrip()
    return JsonArray(name) if start.startswith(b"[") else lines


_READERS: dict[str, Callable[[str], Table]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": _json,
    ".csv": lambda name: CsvTable(name, ","),
    ".tsv": lambda name: CsvTable(name, "\t"),
    ".parquet": Parquet,
    ".arrow": Arrow,
}
FORMATS = f"{', '.join(_READERS)}, the text ones also with .gz; or a folder written by save_to_disk"


def open_tables(paths: Sequence[str]) -> list[Table]:
    """The files that these paths stand for, in their order.

    Raises:
        InputError: every path that is no data set, together
    """
    tables: list[Table] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            tables += _tables_of_folder(path) if file_kind(path) == "folder" else [_table_of_file(path)]
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError(*faults)
    return tables


def _table_of_file(path: str) -> Table:
    packed = path.lower().removesuffix(".gz")
    suffix = Path(packed).suffix
    reader = _READERS.get(suffix)
    if reader is None or (packed != path.lower() and reader in (Parquet, Arrow)):
        near = get_close_matches(suffix, _READERS, 1)
        remedy = f'Did you mean "{near[0]}"?' if near and reader is None else ""
        raise InputError(Fault(path, f'the suffix "{Path(path).suffix[:40]}"' if Path(path).suffix else "no suffix", FORMATS, remedy))
    return reader(path)


def _tables_of_folder(path: str) -> list[Table]:
    folder = Path(path)
    if (folder / "dataset_dict.json").is_file():
        splits = _names(folder / "dataset_dict.json", "splits")
        if "train" not in splits:
            one = f"Name one: {folder / splits[0]}" if splits else ""
            found = f"the splits {', '.join(splits)[:200] or '(none)'}"
            raise InputError(Fault(path, found, "a split called train, or the folder of one", one))
        folder = folder / "train"
    state = folder / "state.json"
    if not state.is_file():
        inside = sorted(file.name for file in folder.iterdir() if file.name.lower().removesuffix(".gz").endswith(tuple(_READERS)))
        remedy = f"Name its files: {', '.join(inside[:3])}{' ...' if len(inside) > 3 else ''}" if inside else ""
        raise InputError(Fault(path, "a folder without state.json", "a data file, or a folder written by save_to_disk", remedy))
    shards = [folder / name for name in _names(state, "_data_files")]
    missing = [shard for shard in shards if not shard.is_file()]
    if missing:
        raise InputError(Fault(str(state), f"names {missing[0].name}, which is not there", "the whole folder as it was written"))
    return [Arrow(str(shard)) for shard in shards]


def _names(file: Path, key: str) -> list[str]:
    """Names of files or folders beside this file, which lists them."""
    try:
        with file.open("rb") as source:
            raw = source.read(_LARGEST_STATE_BYTES + 1)
        state: Any = json.loads(raw[:_LARGEST_STATE_BYTES])
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(str(file), error) from None
    if isinstance(state, dict) and state.get("_indices_data_files"):
        remedy = "Write it again after dataset.flatten_indices()."
        raise InputError(Fault(str(file), "rows chosen through a table of indices", "rows as they stand", remedy))
    entries = state.get(key) if isinstance(state, dict) else None
    names = [entry.get("filename") if isinstance(entry, dict) else entry for entry in entries] if isinstance(entries, list) else [None]
    for name in names:
        if not isinstance(name, str) or not name or name != Path(name).name or name in (".", ".."):
            found = f'no names of files beside it under "{key}"'
            raise InputError(Fault(str(file), found, "state of a data set as save_to_disk writes it"))
    return [str(name) for name in names]
