"""Score the estimates against the published cases and write what comes out (``make accuracy``), or check that it is written.

python validation/accuracy.py             docs/accuracy.md, the table in README.md, validation/baseline.json
python validation/accuracy.py --check     exit code 1 and the names of files that differ
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from accuracy_page import page, short_table
from accuracy_scores import Outcome, by_group, score_all, summarize
from known_gaps import known_gaps
from published_cases import published_cases

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
from generated_pages import between_markers, write_or_check  # noqa: E402 (its folder was put on the path just now)

PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
BASELINE = ROOT / "validation" / "baseline.json"
BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"


def group_errors(outcome: Outcome) -> dict[str, dict[str, float]]:
    """Mean absolute error in percent by group and counter: what the baseline keeps."""
    errors: dict[str, dict[str, float]] = {}
    for (group, counter), scores in by_group(outcome.scores).items():
        errors.setdefault(group, {})[counter] = round(summarize(scores).mean_absolute, 2)
    return errors


def documents(outcome: Outcome) -> dict[Path, str]:
    """The pages that follow from the scores. README.md is among them only where it has the marker lines."""
    cases = published_cases()
    written = {PAGE: page(cases, outcome, known_gaps())}
    if README.exists():
        readme = between_markers(README.read_text(encoding="utf-8"), BEGIN, END, short_table(cases, outcome))
        if readme is not None:
            written[README] = readme
    return written


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    outcome = score_all(published_cases())
    wanted = documents(outcome)
    if README not in wanted:
        print(f"README.md has no lines {BEGIN} and {END}: its table is left out")
    wanted[BASELINE] = json.dumps({"mean_absolute_error_percent": group_errors(outcome)}, indent=2) + "\n"
    return write_or_check(wanted, check="--check" in arguments, remedy="make accuracy")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
