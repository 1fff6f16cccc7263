"""A measured link for the terminal: times and bandwidths by size, then latency and rate beside what the network model assumes."""

from __future__ import annotations

from collections.abc import Sequence

from fullstep.ledger.link import LINK_COLLECTIVES, AssumedLink, LinkFit, LinkSample, MeasuredLink
from fullstep.quantities import GB, Bounds, counted, format_binary
from fullstep.report.paper import Paper

_BY_SIZE = f"{'':17}{'size':>9}{'median':>10}{'half of them':>18}{'algbw':>12}{'busbw':>12}"
_TERMS = f"{'':17}{'latency':>10}{'assumed':>22}{'rate':>12}{'assumed':>12}{'off':>6}"
_NOT_APART = "-: not assumed; or sizes so few or so alike that latency and rate cannot be told apart"
_OFF = "off: the largest difference of that line from a median time, where messages of middle size follow neither end"
_OPEN = "-"


def link_text(measured: MeasuredLink, assumed: Sequence[AssumedLink], assumed_of: str, paper: Paper) -> str:
    """The whole report.

    Args:
        measured: what was seen
        assumed: what the network model says of it
        assumed_of: what it took this machine for, or why it knows nothing of it
        paper: what it is printed on
    """
    lines = [*(paper.ink(piece, "bold") for piece in paper.sentence(_headline(measured), 0)), "", _BY_SIZE]
    for name in LINK_COLLECTIVES:
        lines += _table(name, measured, paper)
    lines += ["", *_terms(measured, {each.collective: each for each in assumed}, paper)]
    lines += ["", *paper.entry("Assumed of", assumed_of)]
    for number, note in enumerate(measured.notes):
        lines += paper.note("" if number else "Notes", note)
    versions = " · ".join(f"{name} {version}" for name, version in measured.versions.items())
    settings = "".join(f" · {name}={value}" for name, value in measured.settings.items())
    lines += paper.entry("Evidence", f"measured {measured.made} · {versions}{settings}")
    return paper.finish(lines)


def _headline(measured: MeasuredLink) -> str:
    where = f"{measured.processors} cores" if measured.device == "cpu" else measured.device
    calls = f"{measured.iterations} call{'s' if measured.iterations > 1 else ''} of each size after {measured.warm_up} untimed ones"
    on_nodes = f" of {measured.nodes} nodes" if measured.nodes > 1 else ""
    return f"{counted(measured.ranks, 'rank')}{on_nodes} on {where}, {measured.backend}: {calls}; {measured.seconds:.0f} s in all"


def _table(name: str, measured: MeasuredLink, paper: Paper) -> list[str]:
    if name in measured.missing:
        return paper.entry(name, f"{measured.backend} does not have it: {measured.missing[name]}")
    return [_row(name if number == 0 else "", sample) for number, sample in enumerate(measured.of(name))]


def _row(name: str, sample: LinkSample) -> str:
    (first, third), unit = _in_one_unit(*sample.quartile_seconds)
    half = f"{_plain(first)}-{_plain(third)} {unit}"
    rates = "".join(f"{rate_words(rate):>12}" for rate in (sample.algorithm_bytes_per_second, sample.bus_bytes_per_second))
    return f"  {name:<15}{format_binary(sample.size_bytes):>9}{time_words(sample.median_seconds):>10}{half:>18}{rates}"


def _terms(measured: MeasuredLink, assumed: dict[str, AssumedLink], paper: Paper) -> list[str]:
    """In the terms of the network model: t = latency + sent / rate."""
    title = "  In the terms of the model: time = latency + bytes that each rank sends / rate"
    lines = [paper.ink(title, "bold"), _TERMS]
    for name in LINK_COLLECTIVES:
        if measured.of(name):
            lines.append(_term(name, measured.fit(name), assumed.get(name)))
    return [*lines, *paper.sentence(_OFF), *paper.sentence(_NOT_APART)]


def _term(name: str, fit: LinkFit | None, assumed: AssumedLink | None) -> str:
    latency = rate = off = _OPEN
    if fit is not None:
        latency, rate, off = time_words(fit.latency_seconds), rate_words(fit.bytes_per_second), f"{100 * fit.furthest_off:.0f} %"
    bounds = _OPEN if assumed is None else _bounds_words(assumed.latency_seconds)
    expected = _OPEN if assumed is None or assumed.fit is None else rate_words(assumed.fit.bytes_per_second)
    return f"  {name:<15}{latency:>10}{bounds:>22}{rate:>12}{expected:>12}{off:>6}"


def _bounds_words(bounds: Bounds) -> str:
    ends, unit = _in_one_unit(*bounds)
    low, likely, high = map(_plain, ends)
    return f"{likely} ({low}-{high}) {unit}"


def time_words(seconds: float) -> str:
    """Three digits in the unit that suits.

    >>> time_words(0.0000123), time_words(0.00456), time_words(1.5)
    ('12.3 us', '4.56 ms', '1.50 s')
    """
    (value,), unit = _in_one_unit(seconds)
    return f"{_plain(value)} {unit}"


def rate_words(bytes_per_second: float) -> str:
    """In units of 10^9 bytes a second, as nccl-tests have them; what would be 0.00 of these in units of 10^6.

    >>> rate_words(482.3 * 1e9), rate_words(8.5e9), rate_words(0.07e9), rate_words(7e6)
    ('482 GB/s', '8.50 GB/s', '0.070 GB/s', '7.00 MB/s')
    """
    value = bytes_per_second / GB
    if value < 0.01:
        return f"{_plain(value * 1000)} MB/s"
    return f"{_plain(value) if value >= 1 else f'{value:.3f}'} GB/s"


def _in_one_unit(*seconds: float) -> tuple[tuple[float, ...], str]:
    """All in the unit that suits the largest."""
    scale, unit = next(((scale, unit) for scale, unit in ((1.0, "s"), (1e-3, "ms")) if max(seconds) >= scale), (1e-6, "us"))
    return tuple(each / scale for each in seconds), unit


def _plain(value: float) -> str:
    """Three digits, more only before the point."""
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
