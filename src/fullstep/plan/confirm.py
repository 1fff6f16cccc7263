"""The best options of a plan asked once more of a better witness: re-judged, ranked again, and what does not fit after all ruled out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fullstep.ledger import Answer, Caution
from fullstep.plan.overall import overall
from fullstep.plan.ranking import cheapest_first, ordered
from fullstep.plan.rejections import rejection_of
from fullstep.plan.rental import with_cost
from fullstep.plan.search import Plan, option_words, with_choices
from fullstep.plan.trial import Trial

Witness = Callable[[Sequence[Trial]], Sequence[Answer]]
"""answers trials anew, in their order; what it cannot answer keeps its answer, marked by :func:`untraced`"""

SHOWN = 3
"""best options that are to be traced"""
MOST = 2 * SHOWN
"""options that are traced at most, where others move up"""
UNTRACED = "F200"
_OF_THE_SELLER = ("machine.host_memory_gib", "machine.cpu_cores")


def confirmed(plan: Plan, witness: Witness) -> Plan:
    """The plan with its first options traced: until those that come first are, or six have been.

    Args:
        plan: by estimates
        witness: traces
    """
    options, out = list(plan.options), []
    asked = 0
    while new := _unasked(options)[: MOST - asked]:
        asked += len(new)
        answers = dict(zip(map(_step_of, new), witness(new), strict=True))
        options = [_answered(trial, answers.get(_step_of(trial))) for trial in options]
        out += [trial for trial in options if trial.verdict == "does_not_fit"]
        left = [trial for trial in options if trial.verdict != "does_not_fit"]
        options = cheapest_first(left) if plan.is_market else ordered(left)
    as_written = next((trial for trial in (*options, *out) if not trial.changes), plan.as_written)
    made = plan._replace(
        verdict=overall(as_written, options, plan.remedies, plan.aside),
        as_written=as_written,
        options=options,
        rejected=[*(rejection_of(f"{option_words(trial)}, traced", trial, options) for trial in out), *plan.rejected],
    )
    return with_choices(made) if plan.is_market else made


def _unasked(options: Sequence[Trial]) -> list[Trial]:
    """The first options that differ by their step, without those that were asked: sellers of one machine share its step."""
    first = list({_step_of(trial): trial for trial in reversed(options)}.values())[::-1][:SHOWN]
    return [trial for trial in first if not _asked(trial)]


def _step_of(trial: Trial) -> tuple[tuple[str, object], ...]:
    """What a trace depends on of an option: all its changes but those that a seller brings."""
    return tuple(sorted((key, value) for key, value in trial.changes.items() if key not in _OF_THE_SELLER))


def _answered(trial: Trial, answer: Answer | None) -> Trial:
    """The option with another answer, and what it costs there."""
    if answer is None:
        return trial
    return trial._replace(answer=answer if trial.rental is None else with_cost(answer, trial.rental))


def untraced(answer: Answer, why: str) -> tuple[Caution, ...]:
    """The cautions of an answer that could not be traced, with the reason."""
    return (*answer.warnings, Caution(UNTRACED, f"not traced: {why}"))


def why_untraced(trial: Trial) -> str:
    """Why a trial that was to be traced was not; empty: it was, or was not asked for."""
    return next((text for code, text in trial.answer.warnings if code == UNTRACED), "")


def _asked(trial: Trial) -> bool:
    return trial.answer.trace is not None or bool(why_untraced(trial))
