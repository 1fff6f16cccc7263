"""Write every page that is made from the code (in docs/, and the report in README.md), or check that they are up to date.

python tools/write_docs.py            write
python tools/write_docs.py --check    exit code 1 and the names of pages that differ
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import write_cautions
import write_formulas
import write_report
import write_worksheet_docs

ROOT = Path(__file__).resolve().parent.parent
PAGES: dict[str, Callable[[], str]] = {
    "README.md": write_report.page,
    "docs/formulas.md": write_formulas.page,
    "docs/worksheet.md": write_worksheet_docs.page,
    "docs/cautions.md": write_cautions.page,
}


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    pages = {ROOT / name: make() for name, make in PAGES.items()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the code says: run make docs")
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
        print(f"{path.relative_to(ROOT)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
