"""Write every page that is made from the code (in docs/, and the report in README.md), or check that they are up to date.

python tools/write_docs.py            write
python tools/write_docs.py --check    exit code 1 and the names of pages that differ
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import write_cautions
import write_evidence
import write_formulas
import write_report
import write_worksheet_docs
from generated_pages import ROOT, write_or_check

PAGES: dict[str, Callable[[], str]] = {
    "README.md": write_report.page,
    "docs/formulas.md": write_formulas.page,
    "docs/worksheet.md": write_worksheet_docs.page,
    "docs/cautions.md": write_cautions.page,
    "docs/evidence.md": write_evidence.page,
}


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    pages = {ROOT / name: make() for name, make in PAGES.items()}
    return write_or_check(pages, check="--check" in arguments, remedy="make docs")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
