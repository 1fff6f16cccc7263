"""The best options of a plan asked once more of a better witness: re-judged, ranked again, and what does not fit after all ruled out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fullstep.ledger import Answer, Caution
from fullstep.plan.overall import overall, with_budget
from fullstep.plan.ranking import cheapest_first, ordered
from fullstep.plan.rejections import rejection_of
from fullstep.plan.search import Plan, option_words, with_choices
from fullstep.plan.trial import Trial

Witness = Callable[[Sequence[Trial]], Sequence[Answer]]
"""answers trials anew, in their order; what it cannot answer keeps its answer, marked by :func:`untraced`"""

SHOWN = 3
"""best options that are to be traced"""
MOST = 2 * SHOWN
"""options that are traced at most, where others move up"""
UNTRACED = "F200"


def confirmed(plan: Plan, witness: Witness) -> Plan:
    """The plan with its first options traced: until those that come first are, or six have been.

    Args:
        plan: by estimates
        witness: traces
    """
    options, out = list(plan.options), []
    named = plan.as_written.job.machine.usable_bytes is not None
    asked = 0
    while new := [place for place, trial in enumerate(options[:SHOWN]) if not _asked(trial)][: MOST - asked]:
        asked += len(new)
        for place, answer in zip(new, witness([options[place] for place in new]), strict=True):
            options[place] = options[place]._replace(answer=answer)
        out += [trial for trial in options if trial.verdict == "does_not_fit"]
        left = [trial for trial in options if trial.verdict != "does_not_fit"]
        options = ordered(left) if named else cheapest_first(left)
    as_written = next((trial for trial in (*options, *out) if not trial.changes), plan.as_written)
    verdict = overall(as_written, options, plan.remedies, plan.aside)
    if options:
        verdict = with_budget(verdict, options)
    made = plan._replace(
        verdict=verdict,
        as_written=as_written,
        options=options,
        rejected=[*(rejection_of(f"{option_words(trial)}, traced", trial, options) for trial in out), *plan.rejected],
    )
    return with_choices(made) if plan.is_market else made


def untraced(answer: Answer, why: str) -> tuple[Caution, ...]:
    """The cautions of an answer that could not be traced, with the reason."""
    return (*answer.warnings, Caution(UNTRACED, f"not traced: {why}"))


def why_untraced(trial: Trial) -> str:
    """Why a trial that was to be traced was not; empty: it was, or was not asked for."""
    return next((text for code, text in trial.answer.warnings if code == UNTRACED), "")


def _asked(trial: Trial) -> bool:
    return trial.answer.trace is not None or bool(why_untraced(trial))
