"""Write generated files where they differ, or say which ones do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_or_check(wanted: Mapping[Path, str], *, check: bool, remedy: str) -> int:
    """Write the files that differ, or only name them with the ``remedy``; returns the exit code, 1 where a check finds one."""
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if not check:
            path.write_text(wanted[path], encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {f'is out of date: run {remedy}' if check else 'written'}")
    return 1 if check and stale else 0


def between_markers(text: str, begin: str, end: str, content: str) -> str | None:
    """The text with what stands between two marker lines replaced; None where the markers are missing."""
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    return f"{before}{begin}\n{content}{end}{after}" if found_begin and found_end else None
