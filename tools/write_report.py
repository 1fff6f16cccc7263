"""The report in README.md: what ``fullstep plan`` prints for the example, between two markers."""

from __future__ import annotations

from generated_pages import ROOT, between_markers

from fullstep import api
from fullstep.offers.catalogue import bundled_offers
from fullstep.offers.currency import default_rates
from fullstep.offers.market import Market
from fullstep.plan.renting import Renter
from fullstep.report.paper import Paper
from fullstep.report.plan_text import plan_text

EXAMPLE = "examples/llama-8b-full.toml"
BEGIN, END = "<!-- report:begin -->", "<!-- report:end -->"
_WIDTH = 100
_LEFT_OUT = ("Missing", "Assumed", "Open")
"""entries that say more to who asked than to who reads the front page"""


def page() -> str:
    """The whole README with the report, on the day of the newest price that comes along."""
    content = f"```\n$ fullstep plan {EXAMPLE}\n\n{_report()}```\n"
    readme = between_markers((ROOT / "README.md").read_text(encoding="utf-8"), BEGIN, END, content)
    if readme is None:
        raise SystemExit(f"README.md has no {BEGIN} followed by {END}: put both lines where the report shall stand")
    return readme


def _report() -> str:
    offers = bundled_offers()
    newest = max(offer.captured_on for offer in offers)
    found = api.plan(api.read_worksheet(ROOT / EXAMPLE), renter=Renter(Market(offers, {}, default_rates())))
    return "".join(_without(plan_text(found, Paper(width=_WIDTH), newest).splitlines(keepends=True)))


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
