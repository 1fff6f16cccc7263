"""Checkpoints as lines for the terminal: size, how often, how fast storage has to be, and what it lacks."""

from __future__ import annotations

from fullstep.ledger import Answer, Checkpoint
from fullstep.quantities import GB, GIB
from fullstep.report.paper import Paper
from fullstep.report.timing_text import moments

STORAGE_CODES = ("F201", "F202", "F203")
"""cautions whose matter stands beside the checkpoint already"""
_MB, _KB = 1e6, 1e3


def checkpoint_lines(answer: Answer, paper: Paper) -> list[str]:
    """One line; a second where the stated storage does not suffice, or where failures ask for more saves."""
    checkpoint = answer.checkpoint
    if checkpoint is None:
        return []
    lines = paper.entry("Checkpoint", checkpoint_words(checkpoint))
    interval = checkpoint.interval
    if interval.bound_by == "failures" and interval.least_loss_seconds is not None:
        least, between = moments(interval.least_loss_seconds.likely), moments(interval.mean_between_failures_seconds.likely)
        lines += paper.entry("", f"saving every {least} would lose least: hardware fails every {between} or so")
    if not checkpoint.storage.sentence:
        return lines
    codes = ", ".join(code for code, _ in answer.warnings if code in STORAGE_CODES)
    return lines + paper.entry("", f"{checkpoint.storage.sentence} ({codes})")


def checkpoint_words(checkpoint: Checkpoint) -> str:
    """What one is, how often, and what storage has to do."""
    size = checkpoint.resumable_bytes
    files = f"{checkpoint.files:,} file{'s' if checkpoint.files > 1 else ''}"
    interval = f"every {moments(checkpoint.interval.seconds)}"
    required = checkpoint.write_bytes_per_second_required
    within = moments(size / required)
    rates = f"{_rate(required)} to write in {within}, {_rate(checkpoint.average_write_bytes_per_second)} on average"
    disk = f"{checkpoint.kept} kept: {sized(checkpoint.disk_bytes)} of disk with the export of {sized(checkpoint.export_bytes)}"
    return " · ".join([f"{sized(size)} ({_binary(size)}) in {files}", interval, rates, disk, checkpoint.evidence])


def sized(size_bytes: float) -> str:
    """A size in units of 10^9 bytes, smaller ones in 10^6 or 10^3.

    >>> sized(96.4e9), sized(289.3e9), sized(4.03e9), sized(83.9e6), sized(6.2e3)
    ('96 GB', '289 GB', '4.0 GB', '84 MB', '6.2 kB')
    """
    size, unit = next(((size, unit) for size, unit in ((GB, "GB"), (_MB, "MB")) if size_bytes >= size), (_KB, "kB"))
    return f"{size_bytes / size:,.{0 if size_bytes >= 10 * size else 1}f} {unit}"


def _binary(size_bytes: float) -> str:
    return f"{size_bytes / GIB:,.1f} GiB" if size_bytes >= GIB else f"{size_bytes / 2**20:,.1f} MiB"


def _rate(bytes_per_second: float) -> str:
    """In GB/s; slow ones in MB/s.

    >>> _rate(0.3214e9), _rate(14.1e9), _rate(280e3)
    ('0.32 GB/s', '14.1 GB/s', '0.28 MB/s')
    """
    if bytes_per_second >= GB / 100:
        rate = bytes_per_second / GB
        return f"{rate:,.{1 if rate >= 10 else 2}f} GB/s"
    return f"{bytes_per_second / _MB:,.{2 if bytes_per_second < _MB else 1}f} MB/s"
