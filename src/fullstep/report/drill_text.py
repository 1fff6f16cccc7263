"""A drill for the terminal: whether it passed, what saving and coming back took, and what was compared."""

from __future__ import annotations

import math

from fullstep.job import Settings
from fullstep.ledger.drill import Drill, DrillCheck, DrillControl, DrillElsewhere, DrillExport
from fullstep.quantities import GB, MIB, counted
from fullstep.report.checkpoint_text import sized
from fullstep.report.paper import Paper
from fullstep.report.wording import headline

_VERDICTS = {
    "passed": "The drill passed", "failed": "The drill FAILED", "void": "The drill is VOID",
}  # fmt: skip
_INK = {"passed": "green", "failed": "red", "void": "red"}
_SIZE_GATE = 0.01
"""within which the predicted size has to be"""
_LOADING_STAGE = "loading the checkpoint"
"""of the restart"""
_WITHOUT = {"scheduler": "scheduler", "rng": "random numbers", "moments": "moments", "loader": "data position"}


def drill_text(settings: Settings, drill: Drill, paper: Paper) -> str:
    """The whole report on one drill.

    Args:
        settings: of the worksheet as it was drilled
        drill: what was seen
        paper: how to print
    """
    lines = [paper.ink(piece, "bold") for piece in paper.sentence(headline(settings), indent=0)]
    lines += ["", *(paper.ink(piece, _INK[drill.verdict]) for piece in paper.sentence(verdict_words(drill))), ""]
    lines += paper.entry("Drilled", _drilled_words(drill))
    if drill.blocks is not None:
        few, whole = drill.blocks
        text = f"{few} of the model's {whole} blocks: every size and time here is of those, the predicted ones as well"
        lines += [paper.ink(line, "yellow") for line in paper.entry("SHORTENED", text)]
    for note in drill.notes:
        lines += paper.entry("Differs", note)
    lines += ["", *_table(drill, paper), ""]
    lines += paper.entry("Save", _save_words(drill))
    lines += paper.entry("Staging", _staging_words(drill))
    lines += paper.entry("Back again", " · ".join(f"{what} {seconds:.1f}" for what, seconds in drill.restart.parts) + " s")
    lines += paper.entry("Loading", _load_words(drill))
    if drill.elsewhere is not None:
        lines += _elsewhere_lines(drill.elsewhere, paper)
    if drill.export is not None:
        lines += paper.entry("Export", _export_words(drill.export))
    lines += ["", paper.ink("  Compared", "bold")]
    lines += [line for check in drill.checks for line in _check_lines(check, paper)]
    lines += ["", paper.ink("  Left out on purpose: each has to be noticed, or the drill is void", "bold")]
    lines += [line for each in drill.controls for line in _control_lines(each, paper)]
    lines += ["", *paper.entry("Evidence", _evidence_words(drill))]
    return paper.finish(lines)


def failed_text(leg: str, what: str, paper: Paper) -> str:
    """Of a drill that ended before there was anything to compare."""
    return paper.finish([paper.ink(piece, "red") for piece in paper.sentence(f"{_VERDICTS['failed']}: {leg}: {what.rstrip('.')}.")])


def verdict_words(drill: Drill) -> str:
    """The verdict with its reason in a sentence."""
    if drill.verdict != "passed":
        return f"{_VERDICTS[drill.verdict]}: {drill.reason}."
    if drill.reason:
        return f"{_VERDICTS['passed']} {drill.reason}."
    return f"{_VERDICTS['passed']}: after the kill the training went on bit for bit as if nothing had happened."


def _drilled_words(drill: Drill) -> str:
    where = "processors" if drill.device == "cpu" else drill.device
    ranks = f"{drill.ranks} rank{'s' if drill.ranks > 1 else ''} ({drill.strategy}) on {where}"
    went = f"saved after step {drill.saved_at} ({drill.save.mode}), killed after step {drill.steps}, resumed in new processes"
    return f"{ranks}: {went}; random weights, {counted(drill.rows_per_step, 'row')} a step; {drill.seconds:.0f} s in all"


def _table(drill: Drill, paper: Paper) -> list[str]:
    """What the seeds of such a drill ask for, measured, predicted, and by the disk alone."""
    predicted = drill.predicted
    save, load = drill.save, drill.load
    raw_write, raw_read = (save.size_bytes * seconds / drill.raw_bytes for seconds in (drill.raw_write_seconds, drill.raw_read_seconds))
    stall = None if predicted is None or predicted.stall_seconds is None else predicted.stall_seconds.likely
    write, restore = (None, None) if predicted is None else (predicted.write_seconds, predicted.restore_seconds)
    rows = [
        ("", "measured", "predicted", "disk alone"),
        ("save until it counts", _seconds(save.published_seconds), _seconds(write), _seconds(raw_write)),
        ("training paused", _seconds(save.stall_seconds), _seconds(stall), ""),
        ("size", sized(save.size_bytes), _predicted_size(drill), ""),
        ("files", f"{save.files:,}", "-" if predicted is None else f"{predicted.files:,}+", ""),
        ("load", _seconds(load.seconds), _seconds(restore), _seconds(raw_read)),
        ("failure to first step", _seconds(drill.restart.seconds), "-", ""),
        ("goes on correctly", _correct(drill), "", ""),
    ]
    lines = [f"  {what:<24}{measured:>18}{said:>26}{disk:>14}" for what, measured, said, disk in rows]
    return [paper.ink(lines[0], "bold"), *lines[1:], *paper.sentence(_predicted_words(drill))]


def _predicted_words(drill: Drill) -> str:
    """What the predicted column takes for granted, and what it leaves out."""
    files = "Files are those of tensors, .metadata and the manifest fullstep.json"
    if drill.predicted is None:
        return f"{files}."
    rates = "by the rates that the worksheet states"
    if drill.predicted_with == "measured":
        rates = "by the rates of the raw writers and readers here, where the worksheet states none"
    left_out = "collecting the state, digests, agreement of the ranks and imports are not in them"
    return f"{files}; predicted without the manifest. Predicted times to save and load are the disk's alone, {rates}: {left_out}."


def _predicted_size(drill: Drill) -> str:
    difference = drill.size_difference
    if difference is None or drill.predicted is None:
        return "-"
    mark = "" if abs(difference) <= _SIZE_GATE else " !"
    return f"{sized(drill.predicted.predicted_bytes)} ({difference:+.2%}{mark})"


def _correct(drill: Drill) -> str:
    if drill.verdict != "passed":
        return {"failed": "NO", "void": "not proven"}[drill.verdict]
    undecided = any(check.leg == "uninterrupted" and check.holds is None for check in drill.checks)
    return "within rounding" if undecided else "bit for bit"


def _save_words(drill: Drill) -> str:
    save, warm_up = drill.save, drill.warm_up
    rate, raw = save.size_bytes / save.published_seconds, drill.raw_bytes / drill.raw_write_seconds
    words = [
        f"{rate / 1e6:,.0f} MB/s, {rate / raw:.0%} of the {raw / 1e6:,.0f} MB/s of as many raw writers",
        f"the first of the process paused {warm_up.stall_seconds:.2f} s",
        f"writing waited {save.digest_seconds:.2f} s for digests, which are computed beside it",
    ]  # fmt: skip
    if save.mode != "sync":
        words.append(f"steps beside it took {save.slowed_seconds:.2f} s longer in all")
    return " · ".join(words)


def _staging_words(drill: Drill) -> str:
    if drill.staging_bytes is None or drill.staging_kept_bytes is None:
        return "host memory: this system does not say"
    return f"host memory of all ranks: {_mib(drill.staging_bytes)} more at most while saving, {_mib(drill.staging_kept_bytes)} stay"


def _load_words(drill: Drill) -> str:
    """Its parts add up to the load of the table; the stage of the restart has more in it."""
    load = drill.load
    parts = f"{load.verify_seconds:.2f} to verify all digests + {load.load_seconds:.2f} to read + {load.apply_seconds:.2f} to apply"
    rate = f"{load.size_bytes / load.seconds / 1e6:,.0f} MB/s, what the system's cache held included"
    words = [f"{load.seconds:.2f} s = {parts}, each of its slowest rank", rate]
    stage = dict(drill.restart.parts).get(_LOADING_STAGE, 0.0)
    if stage > load.seconds:
        words.append(f"finding the newest one and making ready to load it took the rest of the {stage:.1f} s above")
    return " · ".join(words)


def _export_words(export: DrillExport) -> str:
    files = f"{export.files:,} file{'s' if export.files > 1 else ''}"
    return f"{sized(export.size_bytes)} in {files}, {export.tensors:,} tensors, written in {export.seconds:.1f} s"


def _elsewhere_lines(elsewhere: DrillElsewhere, paper: Paper) -> list[str]:
    ranks = f"{elsewhere.ranks} rank{'s' if elsewhere.ranks > 1 else ''} ({elsewhere.strategy})"
    found = f"{_losses_words(elsewhere.loss_difference)}: {elsewhere.why}; above {elsewhere.gate:.1e} ({elsewhere.gate_why})"
    caught = elsewhere.mildest_fault > elsewhere.gate
    tested = f"the mildest fault made on purpose gives {_number(elsewhere.mildest_fault)}"
    tested += "" if caught else ", which this gate does NOT catch: here only the state after loading proves anything"
    apart = ", ".join(f"{kind} {_number(share)} ({tensor})" for kind, share, tensor in elsewhere.differences)
    why = "without dropout, since random numbers are each rank's own"
    lines = paper.entry("Elsewhere", f"{ranks}, {why}: {found} is no rounding; {tested}")
    return lines + paper.entry("", f"apart at the end, relative to the largest value of the tensor: {apart}")


def _losses_words(difference: float) -> str:
    if math.isfinite(difference):
        return f"losses differ by {difference:.1e} at most"
    return "losses cannot be compared: one of them is no number, or no step is common to both"


def _number(difference: float) -> str:
    """
    >>> _number(2.3e-5), _number(float("inf"))
    ('2.3e-05', 'no number')
    """
    return f"{difference:.1e}" if math.isfinite(difference) else "no number"


def _check_lines(check: DrillCheck, paper: Paper) -> list[str]:
    word, ink = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("open", "yellow")}[check.holds]
    return _marked(word, ink, f"{check.leg}: {check.what}: {check.found}", paper)


def _control_lines(each: DrillControl, paper: Paper) -> list[str]:
    word, ink = {True: ("noticed", "green"), False: ("MISSED", "red"), None: ("none", "dim")}[each.caught]
    return _marked(word, ink, f"{_WITHOUT.get(each.without, each.without)}: {each.found}", paper)


def _marked(word: str, ink: str, text: str, paper: Paper) -> list[str]:
    first, *others = paper.wrapped(text, paper.width - 13)
    return [f"    {paper.ink(f'{word:<9}', ink)}{first}", *(" " * 13 + piece for piece in others)]


def _evidence_words(drill: Drill) -> str:
    """A folder is named only where it may still be there."""
    versions = " · ".join(f"{name} {version}" for name, version in drill.versions)
    return f"measured · {versions}{f' · checkpoints in {drill.folder}' if drill.is_kept else ''}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:,.2f} s"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / GB:,.2f} GB" if size_bytes >= GB else f"{size_bytes / MIB:,.0f} MiB"
