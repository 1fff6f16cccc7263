"""The report in README.md: what ``fullstep plan`` prints for the example, between two markers."""

from __future__ import annotations

from pathlib import Path

from fullstep import api
from fullstep.report.paper import Paper
from fullstep.report.plan_text import plan_text

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/llama-8b-full.toml"
BEGIN, END = "<!-- report:begin -->", "<!-- report:end -->"
_WIDTH = 100
_LEFT_OUT = ("Missing", "Assumed", "Open")
"""entries that say more to who asked than to who reads the front page"""


def page() -> str:
    """The whole README with the report of today."""
    before, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"README.md has no {BEGIN} followed by {END}")
    return f"{before}{BEGIN}\n```\n$ fullstep plan {EXAMPLE}\n\n{_report()}```\n{END}{after}"


def _report() -> str:
    found = api.plan(api.read_worksheet(ROOT / EXAMPLE))
    return "".join(_without(plan_text(found, Paper(width=_WIDTH)).splitlines(keepends=True)))


def _without(lines: list[str]) -> list[str]:
    """The lines without the entries that are left out: a label in the third column and what stands below it."""
    kept: list[str] = []
    inside = False
    for line in lines:
        begins = line.strip() == "" or not line.startswith("   ")
        inside = line.strip().startswith(_LEFT_OUT) if begins else inside
        if not inside:
            kept.append(line)
    return kept
