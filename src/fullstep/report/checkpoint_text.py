"""Checkpoints as lines for the terminal: size, how often, how fast storage has to be, and what it lacks."""

from __future__ import annotations

from fullstep.evidence import Assumption
from fullstep.ledger import Answer, Checkpoint, CheckpointInterval
from fullstep.plan.storage_words import rate_words, size_words
from fullstep.quantities import GB, GIB
from fullstep.report.paper import Paper
from fullstep.report.timing_text import moments

STORAGE_CODES = ("F201", "F202", "F203")
"""cautions whose matter stands beside the checkpoint already"""
_MB, _KB = 1e6, 1e3
_TO_SET = ("lose_at_most_minutes", "write_within_minutes", "restore_within_minutes", "keep")
"""keys of the worksheet that decide what is said here"""
_STATED_OF_STORAGE = 3
"""write rate, read rate, disk"""


def checkpoint_lines(answer: Answer, paper: Paper) -> list[str]:
    """What one is and how often, what storage has to do, whether it does, and which keys say what is wanted."""
    checkpoint = answer.checkpoint
    if checkpoint is None:
        return []
    codes = ", ".join(code for code, _ in answer.warnings if code in STORAGE_CODES)
    lines = paper.entry("Checkpoint", checkpoint_words(checkpoint))
    texts = [
        _often_words(checkpoint.interval), _rate_words(checkpoint), _disk_words(checkpoint), _storage_words(checkpoint, codes),
        _default_words(answer.assumptions),
    ]  # fmt: skip
    return lines + [line for text in texts if text for line in paper.entry("", text)]


def checkpoint_words(checkpoint: Checkpoint) -> str:
    """What one is, and how often."""
    size = checkpoint.resumable_bytes
    files = f"{checkpoint.files:,} file{'s' if checkpoint.files > 1 else ''}"
    return f"{size_words(size)} ({_binary(size)}) in {files} · every {moments(checkpoint.interval.seconds)} · {checkpoint.evidence}"


def _often_words(interval: CheckpointInterval) -> str:
    """Where failures ask for more saves; else empty."""
    if not interval.least_loss_is_shorter or interval.least_loss_seconds is None:
        return ""
    least, between = moments(interval.least_loss_seconds.likely), moments(interval.mean_between_failures_seconds.likely)
    return f"saving every {least} would lose least: hardware fails every {between} or so"


def _rate_words(checkpoint: Checkpoint) -> str:
    need = checkpoint.storage
    write, read = need.write_bytes_per_second_per_node, need.read_bytes_per_second_per_node
    write_within = moments(checkpoint.resumable_bytes / checkpoint.write_bytes_per_second_required)
    read_within = moments(checkpoint.restore_bytes / checkpoint.read_bytes_per_second_required)
    average = checkpoint.average_write_bytes_per_second * write / checkpoint.write_bytes_per_second_required
    writing = f"{rate_words(write, up=True)} to write in {write_within} ({rate_words(average)} on average)"
    return f"storage per node: {writing}, {rate_words(read, up=True)} to read back in {read_within}"


def _disk_words(checkpoint: Checkpoint) -> str:
    disk, export = size_words(checkpoint.storage.disk_bytes_per_node, up=True), size_words(checkpoint.export_bytes)
    return f"disk per node: {disk} = {checkpoint.kept} kept + the one being written + the export of {export}"


def _storage_words(checkpoint: Checkpoint, codes: str) -> str:
    """Whether what is stated suffices, and what saving and restoring take with it; which keys are missing."""
    need = checkpoint.storage
    times = ((checkpoint.write_seconds, "written"), (checkpoint.restore_seconds, "read back"))
    takes = ", ".join(f"{what} in {moments(seconds)}" for seconds, what in times if seconds is not None)
    missing = f"not stated: {', '.join(need.unstated)}" if need.unstated else ""
    if need.verdict == "does_not_suffice":
        takes = f"as it is {takes}" if takes else ""
        return "; ".join(part for part in (f"{need.sentence} ({codes})", takes, missing) if part)
    if need.verdict == "suffices":
        return f"the stated storage suffices: {takes}"
    stated = f"what is stated of storage suffices{': ' if takes else ''}{takes}" if len(need.unstated) < _STATED_OF_STORAGE else ""
    return "; ".join(part for part in (stated, missing) if part)


def _default_words(assumptions: tuple[Assumption, ...]) -> str:
    """Which of the keys that decide have their default."""
    assumed = {each.key for each in assumptions}
    keys = [key for key in _TO_SET if f"checkpoint.{key}" in assumed]
    return f"by default, set them under [checkpoint]: {', '.join(keys)}" if keys else ""


def sized(size_bytes: float) -> str:
    """A size in units of 10^9 bytes, smaller ones in 10^6 or 10^3.

    >>> sized(96.4e9), sized(289.3e9), sized(4.03e9), sized(83.9e6), sized(6.2e3)
    ('96 GB', '289 GB', '4.0 GB', '84 MB', '6.2 kB')
    """
    size, unit = next(((size, unit) for size, unit in ((GB, "GB"), (_MB, "MB")) if size_bytes >= size), (_KB, "kB"))
    return f"{size_bytes / size:,.{0 if size_bytes >= 10 * size else 1}f} {unit}"


def _binary(size_bytes: float) -> str:
    return f"{size_bytes / GIB:,.1f} GiB" if size_bytes >= GIB else f"{size_bytes / 2**20:,.1f} MiB"
