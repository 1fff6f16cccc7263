"""The main job: every sensible way to run a worksheet, ranked; what does not fit and why; one verdict over all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fullstep.job import Worksheet
from fullstep.plan.candidates import RuledOut, node_counts, search_machine, trimmed
from fullstep.plan.layouts import layout_name, layout_words, machine_words
from fullstep.plan.market import COUNTS, enough_bytes, search_cards
from fullstep.plan.missing import Missing, missing_data
from fullstep.plan.ranking import ranked
from fullstep.plan.rejections import Rejection, rejected
from fullstep.plan.remedies import Remedy, remedies
from fullstep.plan.savers import OFFLOADS_OPTIMIZER, level_of, level_words
from fullstep.plan.trial import Size, Trial, Workbench
from fullstep.quantities import GIB, format_gib

Overall = Literal["one_server_replicated", "one_server_sharded", "several_servers", "undecided", "nothing_fits"]
_USUAL_HOST_BYTES = 1024 * GIB
"""a need for more host memory than this is a condition of the verdict"""
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
    if bench.as_written.job.machine.usable_bytes is None and bench.may_change("machine.gpu"):
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
    helps = _helps(bench, options, ruled_out)
    return Plan(
        verdict=overall(bench.as_written, options, helps),
        as_written=bench.as_written,
        options=options,
        rejected=rejected(bench.as_written, ruled_out, options, helps if bench.as_written.verdict != "unknown" else ()),
        remedies=helps,
        missing=missing_data(bench.as_written.job),
        spent=bench.spent,
    )


def _helps(bench: Workbench, options: Sequence[Trial], ruled_out: Sequence[RuledOut]) -> list[Remedy]:
    """Single changes to the worksheet as written; where it names no card and none will do, to that on the largest cards."""
    if bench.as_written.verdict == "fits" or (bench.as_written.verdict == "unknown" and options):
        return []
    if bench.as_written.verdict != "unknown":
        return remedies(bench)
    sized = [group.closest for group in ruled_out if isinstance(group.closest, Trial)]
    if not sized:
        return []
    largest = max(sized, key=lambda trial: trial.job.machine.usable_bytes or 0)
    chosen = option_changes(largest)
    machine = machine_words(largest.job)
    found = remedies(Workbench(largest.worksheet, bench.size))
    return [remedy._replace(changes={**chosen, **remedy.changes}, words=f"{remedy.words}, with {machine}") for remedy in found]


def overall(as_written: Trial, options: Sequence[Trial], helps: Sequence[Remedy]) -> PlanVerdict:
    """One verdict over all options (best first), with its reason."""
    if not options:
        return _nothing_fits(as_written, helps)
    best = options[0]
    job = best.job
    where = _where(best) if as_written.job.machine.usable_bytes is not None else _any_card(options)
    reason = best.answer.memory.reason
    if not best.fits:
        settle = "run one full step of it and put its peak into [measured], then ask again"
        if best.verdict == "unknown":
            settle = "state machine.gpu, or machine.gpu_memory_gib, then ask again"
        return PlanVerdict("undecided", reason, f"Not decidable yet: {where}; {reason}.", settle)
    where += _host_condition(best)
    if job.machine.nodes > 1:
        fewer = any(trial.fits and trial.job.machine.nodes < job.machine.nodes for trial in options)
        need = "Several servers keep the optimizer on the GPUs" if fewer else "Several servers are needed for the memory"
        why = "on fewer nodes the optimizer would have to be offloaded" if fewer else "no layout fits on fewer nodes"
        return PlanVerdict("several_servers", f"{why}; {reason}", f"{need}: {where}.", None)
    one = "One GPU is enough" if job.machine.gpus == 1 else "One server is enough"
    answer: Overall = "one_server_sharded" if job.layout.shards > 1 or job.layout.strategy == "layer_split" else "one_server_replicated"
    return PlanVerdict(answer, reason, f"{one}: {where}.", None)


def _any_card(options: Sequence[Trial]) -> str:
    """The cards that would do, by their memory, and the smallest of them as an example."""
    best, card = options[0], options[0].job.machine.card
    enough = enough_bytes(options)
    if card is None or enough is None or not best.fits:
        return _where(best)
    able = "bfloat16 card" if best.job.precision.compute == "bfloat16" else "card"
    many = f"{best.job.machine.gpus} of " if best.job.machine.gpus > 1 else ""
    guessed = "" if card.reported_bytes is not None else f" ({format_gib(card.total_bytes)} by its marketing size)"
    example = _where(best).replace(card.key, f"{card.key}{guessed}", 1)
    return f"{many}any {able} from {format_gib(enough)}, for example {example}"


def _where(trial: Trial) -> str:
    """Machine, layout, and what it costs in speed where it costs any."""
    job = trial.job
    where = machine_words(job) if job.layout.strategy == "single" else f"{machine_words(job)}, {layout_words(job)}"
    cost = level_words(job)
    return f"{where}, {cost}" if cost else where


def _host_condition(trial: Trial) -> str:
    """What the host memory must be, where nobody said what it is and it is more than servers have as a matter of course."""
    host, job = trial.answer.host, trial.job
    offloads = level_of(job)[0] >= OFFLOADS_OPTIMIZER
    if host.verdict != "unknown" or not (offloads or host.memory_peak_bytes > _USUAL_HOST_BYTES):
        return ""
    needed_gib = math.ceil(host.memory_peak_bytes / (1 - job.goal.reserve_fraction) / GIB)
    return f", if each server has {needed_gib:,} GiB of host memory"


def _nothing_fits(as_written: Trial, helps: Sequence[Remedy]) -> PlanVerdict:
    reason = as_written.answer.memory.reason
    where = machine_words(as_written.job)
    if as_written.job.machine.usable_bytes is None:
        where = f"up to {COUNTS[-1]} GPUs of any card in the catalogue"
        reason = f"no card of the catalogue is large enough, {COUNTS[-1]} in one server at most"
    sentence = f"Nothing fits on {where} without altering the training."
    if helps:
        first = helps[0]
        sentence = f"Nothing fits on {where}; the smallest change that would help: {first.words}"
        sentence += " (it alters the training)." if first.changes_training else "."
    return PlanVerdict("nothing_fits", reason, sentence, None)


def option_changes(trial: Trial) -> Mapping[str, object]:
    """What an option states differently from the worksheet as written."""
    return {key: value for key, value in trial.changes.items() if value is not None}


def option_words(trial: Trial) -> str:
    """An option in one line: ``FSDP2, no recomputation, 4 rows x 2``."""
    job = trial.job
    where = layout_name(job.layout)
    if job.machine.nodes > 1:
        where += f" on {job.machine.nodes} nodes"
    card = "" if job.machine.card is None else f"{job.machine.gpus} x {job.machine.card.key}, "
    level = level_words(job) or "no recomputation"
    shown = "" if trial.changes.get("machine.gpu") is None else card
    rows = f"{job.batch.micro_batch} row{'s' if job.batch.micro_batch > 1 else ''} x {job.batch.accumulation}"
    return f"{shown}{where}, {level}, {rows}" + ("" if option_changes(trial) else " (as written)")
