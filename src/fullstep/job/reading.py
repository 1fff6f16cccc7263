"""A worksheet from a file or from standard input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from fullstep.errors import Fault, InputError
from fullstep.job.parsing import PARSERS, Parsed, parse_any, parse_json
from fullstep.job.raw_bytes import LARGEST_BYTES, bytes_of_file, bytes_of_stdin, is_handed_over, too_large
from fullstep.job.refusal import describe
from fullstep.job.validation import worksheet_from_mapping
from fullstep.job.worksheet import Lines, Worksheet


def read_worksheet(path: str | Path, stdin: BinaryIO | TextIO | None = None) -> Worksheet:
    """The worksheet in a file (TOML, YAML or JSON by its suffix, otherwise by trying), or from standard input for ``-``.

    Raises:
        InputError: there is no such file, it is too large, it is no text, or what it says is not allowed; all faults together.
    """
    mapping, origin, lines = read_mapping(path, stdin)
    return worksheet_from_mapping(mapping, origin, lines)


def read_mapping(path: str | Path, stdin: BinaryIO | TextIO | None = None) -> tuple[dict[str, Any], str, Lines]:
    """The same before it is checked (so that flags can be laid over it): mapping, its name in messages, its lines."""
    if not str(path).strip():
        raise InputError(Fault("worksheet", "an empty name", "a worksheet file, or - for standard input"))
    origin = "standard input" if str(path) == "-" else str(path)[:200]
    raw = bytes_of_stdin(stdin, origin) if str(path) == "-" else bytes_of_file(path, origin)
    text = _text(raw, origin)
    suffix = "" if str(path) == "-" else Path(path).suffix.lower()
    parsed: Parsed = PARSERS.get(suffix, parse_any)(text, origin)
    mapping, lines = parsed
    if mapping is None:
        mapping = {}
    if not isinstance(mapping, dict):
        raise InputError(Fault(origin, f"{describe(mapping)} instead of a worksheet", "a table with the section model"))
    if not is_handed_over(path):
        _resolve_config(mapping, Path(path).parent)
    return mapping, origin, lines


def worksheet_from_json(text: str, origin: str = "worksheet") -> Worksheet:
    """The worksheet in one JSON text, for example a line of ``--jsonl``."""
    if len(text) > LARGEST_BYTES:
        raise too_large(origin, f"{len(text):,} characters")
    mapping, lines = parse_json(text, origin)
    return worksheet_from_mapping(mapping, origin, lines)


def _text(raw: bytes, origin: str) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is not UTF-8"
        raise InputError(Fault(origin, found, "a text file in UTF-8", "Is this a worksheet? Or save it as UTF-8.")) from None
    if "\0" in text:
        raise InputError(Fault(origin, "binary data", "a text file in UTF-8"))
    if not text.strip():
        allowed = "a worksheet with at least model.name or model.config"
        raise InputError(Fault(origin, "empty", allowed, "`fullstep init` writes a blank one."))
    return text


def _resolve_config(mapping: dict[str, Any], folder: Path) -> None:
    """A relative path under model.config starts from the worksheet's own folder."""
    model = mapping.get("model")
    if not isinstance(model, dict):
        return
    config = model.get("config")
    if isinstance(config, str) and config and len(config) < 4096:
        model["config"] = str(folder / os.path.expanduser(config))  # noqa: PTH111 - Path.expanduser raises for an unknown user
