"""The main job: every sensible way to run a worksheet, ranked; what does not fit and why; one verdict over all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fullstep.job import Worksheet
from fullstep.plan.candidates import RuledOut, node_counts, search_machine, trimmed
from fullstep.plan.layouts import layout_words, machine_words
from fullstep.plan.market import search_cards
from fullstep.plan.missing import Missing, missing_data
from fullstep.plan.ranking import ranked
from fullstep.plan.rejections import Rejection, rejected
from fullstep.plan.remedies import Remedy, remedies
from fullstep.plan.savers import level_words
from fullstep.plan.trial import Size, Trial, Workbench

Overall = Literal["one_server_replicated", "one_server_sharded", "several_servers", "undecided", "nothing_fits"]
_TRIMMED = 6
"""best options for which it is worth finding out which free savers they do not need"""


class PlanVerdict(NamedTuple):
    """The verdict on the worksheet as a whole."""

    answer: Overall
    reason: str
    sentence: str
    decide_by: str | None
    """what would settle it, where it is undecided"""


class Plan(NamedTuple):
    """All that ``fullstep plan`` says."""

    verdict: PlanVerdict
    as_written: Trial
    options: Sequence[Trial]
    rejected: Sequence[Rejection]
    remedies: Sequence[Remedy]
    """single changes to the worksheet as written; empty where it fits as it is"""
    missing: Sequence[Missing]
    spent: int
    """estimates that the search took"""


def plan(worksheet: Worksheet, size: Size) -> Plan:
    """Searches the worksheet's machine, or the catalogue where it names none.

    Args:
        worksheet: what is wanted
        size: what sizes one completed job

    Raises:
        InputError: the worksheet as written is at fault
    """
    bench = Workbench(worksheet, size)
    ruled_out: list[RuledOut] = []
    if bench.as_written.job.machine.usable_bytes is None:
        found = search_cards(bench)
        trials, ruled_out = found.trials, found.ruled_out
        options = trials
    else:
        trials = [bench.as_written]
        for nodes in node_counts(bench.as_written.job):
            found = search_machine(bench, nodes)
            trials += found.trials
            ruled_out += found.ruled_out
            if any(trial.fits for trial in found.trials) and nodes >= bench.as_written.job.machine.nodes:
                break
        options = ranked(trials)
        options = ranked([trimmed(bench, trial) for trial in options[:_TRIMMED]] + options[_TRIMMED:])
    helps = [] if bench.as_written.verdict in ("fits", "unknown") else remedies(bench)
    return Plan(
        verdict=overall(bench.as_written, options, helps),
        as_written=bench.as_written,
        options=options,
        rejected=rejected(bench.as_written, ruled_out, options, helps),
        remedies=helps,
        missing=missing_data(bench.as_written.job),
        spent=bench.spent,
    )


def overall(as_written: Trial, options: Sequence[Trial], helps: Sequence[Remedy]) -> PlanVerdict:
    """One verdict over all options (best first), with its reason."""
    if not options:
        return _nothing_fits(as_written, helps)
    best = options[0]
    job = best.job
    where = _where(best)
    reason = best.answer.memory.reason
    if not best.fits:
        settle = "run one full step of it and put its peak into [measured], then ask again"
        if best.verdict == "unknown":
            settle = "state machine.gpu, or machine.gpu_memory_gib, then ask again"
        return PlanVerdict("undecided", reason, f"Not decidable yet: {where}; {reason}.", settle)
    if job.machine.nodes > 1:
        sentence = f"Several servers are needed for the memory: {where}."
        return PlanVerdict("several_servers", f"no layout fits on fewer nodes; {reason}", sentence, None)
    one = "One GPU is enough" if job.machine.gpus == 1 else "One server is enough"
    answer: Overall = "one_server_sharded" if job.layout.shards > 1 or job.layout.strategy == "layer_split" else "one_server_replicated"
    return PlanVerdict(answer, reason, f"{one}: {where}.", None)


def _where(trial: Trial) -> str:
    """Machine, layout, and what it costs in speed where it costs any."""
    job = trial.job
    where = machine_words(job) if job.layout.strategy == "single" else f"{machine_words(job)}, {layout_words(job)}"
    cost = level_words(job)
    return f"{where}, {cost}" if cost else where


def _nothing_fits(as_written: Trial, helps: Sequence[Remedy]) -> PlanVerdict:
    reason = as_written.answer.memory.reason
    sentence = f"Nothing fits on {machine_words(as_written.job)} without altering the training."
    if helps:
        first = helps[0]
        sentence = f"Nothing fits on {machine_words(as_written.job)}; the smallest change that would help: {first.words}"
        sentence += " (it alters the training)." if first.changes_training else "."
    return PlanVerdict("nothing_fits", reason, sentence, None)


def option_changes(trial: Trial) -> Mapping[str, object]:
    """What an option states differently from the worksheet as written."""
    return {key: value for key, value in trial.changes.items() if value is not None}
