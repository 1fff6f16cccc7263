"""What became of fetching prices, a line for each provider."""

from __future__ import annotations

from fullstep.errors import printable
from fullstep.offers.live.refresh import Outcome, Refresh
from fullstep.quantities import counted

_STATES = {"done": "done", "failed": "FAILED", "left_out": "left out"}


def outcome_text(outcome: Outcome) -> str:
    """One provider in one line.

    >>> outcome_text(Outcome("vast", "failed", "HTTP 503"))
    'vast           FAILED    HTTP 503\\n'
    """
    said = outcome.reason
    if outcome.state == "done":
        dropped = ", ".join(f"{count} {reason}" for reason, count in outcome.dropped.items())
        said = f"{counted(outcome.offers, 'offer')} from {outcome.asked}{f'; left out: {dropped}' if dropped else ''}"
        said += f"; before that {outcome.reason}" if outcome.reason else ""
    return printable(f"{outcome.provider:<14} {_STATES[outcome.state]:<9} {said}") + "\n"


def refresh_text(found: Refresh) -> str:
    """Who was not asked and why, what was saved, and where."""
    left_out: dict[str, list[str]] = {}
    for outcome in found.outcomes:
        if outcome.state == "left_out":
            left_out.setdefault(outcome.reason, []).append(outcome.provider)
    lines = [f"Not asked, {reason}: {', '.join(names)}." for reason, names in left_out.items()]
    if found.done:
        offers, sellers = (counted(sum(outcome.offers for outcome in found.done), "offer"), counted(len(found.done), "provider"))
        lines.append(f"Saved {offers} of {sellers} in {found.folder}; what was there of theirs is replaced.")
    else:
        lines.append("Nothing could be fetched; prices stay as they were.")
    return "".join(f"{printable(line)}\n" for line in lines)
