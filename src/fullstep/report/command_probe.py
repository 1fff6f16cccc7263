"""The probe of somebody's own training, for the terminal."""

from __future__ import annotations

import shlex

from fullstep.ledger.probe import OutOfMemory, Probe, ProbedRank, Stretch, instants_of
from fullstep.report.paper import Paper
from fullstep.report.wording import measured_size

_OUTCOMES = {
    "completed": "Measured", "out_of_memory": "OUT OF MEMORY", "rank_died": "A RANK DIED", "hung": "IT HUNG", "stopped": "Stopped",
}  # fmt: skip
_INK = {"completed": "green", "out_of_memory": "red", "rank_died": "red", "hung": "red", "stopped": "yellow"}
_MOST_RANKS = 16


def command_probe_text(probe: Probe, paper: Paper) -> str:
    """The whole report."""
    lines = [paper.ink(line, "bold") for line in paper.sentence(shlex.join(probe.command), indent=0)]
    word = _OUTCOMES[probe.outcome] if probe.ranks or probe.outcome != "completed" else "Nothing was measured: no optimizer step was seen"
    outcome = word + (f": {probe.reason}." if probe.reason else ".")
    lines += ["", *(paper.ink(line, _INK[probe.outcome]) for line in paper.sentence(outcome))]
    if probe.out_of_memory is not None and (said := _asked(probe.out_of_memory)):
        lines += paper.sentence(said)
    lines += ["", *paper.entry("Ranks", _ranks_words(probe)), *paper.entry("Step", _step_words(probe))]
    if probe.data_wait_fraction:
        lines += paper.entry("Data", f"{probe.data_wait_fraction:.1%} of the step waits for torch's DataLoader")
    if saves := [rank.save_seconds for rank in probe.ranks if rank.save_seconds is not None]:
        lines += paper.entry("Save", f"{max(saves):.2f} s for a checkpoint")
    lines += _memory_lines(probe, paper)
    lines += [line for note in probe.environment.get("busy", ()) for line in paper.entry("Busy", str(note))]
    for note in probe.notes:
        lines += paper.note("Note", note)
    return paper.finish(lines)


def _asked(ran_out: OutOfMemory) -> str:
    parts = [
        text
        for text, size in (
            ("{} were asked for", ran_out.asked_bytes), ("{} were allocated", ran_out.allocated_bytes),
            ("{} reserved", ran_out.reserved_bytes), ("the limit is {}", ran_out.limit_bytes),
        )
        if size is not None
    ]  # fmt: skip
    sizes = [ran_out.asked_bytes, ran_out.allocated_bytes, ran_out.reserved_bytes, ran_out.limit_bytes]
    said = ", ".join(parts).format(*(measured_size(size) for size in sizes if size is not None))
    enough = "" if ran_out.enough_bytes is None else f" {measured_size(ran_out.enough_bytes)} would have been enough at that instant."
    return f"{said[:1].upper()}{said[1:]}.{enough}" if said else ""


def _ranks_words(probe: Probe) -> str:
    devices = sorted({rank.device for rank in probe.ranks})
    there = len({rank.rank for rank in probe.ranks})
    told = "" if there == probe.world_size else f", of which {there} left a record here"
    return f"{probe.world_size}{told} · {', '.join(devices[:4]) or 'none'}"


def _step_words(probe: Probe) -> str:
    seconds = probe.step_seconds
    if not seconds:
        return "none was timed: two steps are needed"
    middle = probe.median_step_seconds or 0.0
    count = f"{len(seconds)} step{'' if len(seconds) == 1 else 's'} timed"
    return f"{_timed(middle)} (median; {_timed(min(seconds))} to {_timed(max(seconds))}), {count}, each by its slowest rank"


def _memory_lines(probe: Probe, paper: Paper) -> list[str]:
    worst = probe.worst
    lines: list[str] = []
    if worst is not None and worst.peak is not None:
        highest = measured_size(worst.peak.allocated_peak_bytes)
        lines += paper.entry("Highest", f"{highest} allocated on rank {worst.rank}, {_at(worst.peak)}")
        instants = [f"{name.replace('_', ' ')} {measured_size(size)}" for name, size in instants_of(worst.memory).items()]
        lines += paper.entry("Last step", " · ".join(instants))
    if not probe.ranks:
        return lines
    lines += ["", paper.ink(f"  {'rank':>6}{'allocated':>14}{'reserved':>14}{'device':>14}{'host memory':>14}  highest", "bold")]
    lines += [_rank_line(rank) for rank in probe.ranks[:_MOST_RANKS]]
    left = len(probe.ranks) - _MOST_RANKS
    return [*lines, *([f"  and {left} more"] if left > 0 else []), ""]


def _rank_line(rank: ProbedRank) -> str:
    def highest(values: list[int | None]) -> str:
        known = [value for value in values if value is not None]
        return measured_size(max(known)) if known else "-"

    columns = [
        highest([each.allocated_peak_bytes for each in rank.memory]), highest([each.reserved_peak_bytes for each in rank.memory]),
        highest([each.device_used_bytes for each in rank.memory]), highest([rank.host_peak_bytes]),
    ]  # fmt: skip
    return f"  {rank.rank:>6}" + "".join(f"{each:>14}" for each in columns) + (f"  {_at(rank.peak)}" if rank.peak else "")


def _at(peak: Stretch) -> str:
    return f"{peak.phase.replace('_', ' ')} of step {peak.step}" if peak.step else peak.phase.replace("_", " ")



def _timed(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
