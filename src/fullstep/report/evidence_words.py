"""Records of probes and of links in a few words: what ran, how, and what it gave."""

from __future__ import annotations

from typing import Any

from fullstep.ledger.link import LINK_COLLECTIVES, MeasuredLink
from fullstep.ledger.probe import Probe
from fullstep.report.link_text import rate_words, time_words
from fullstep.report.wording import measured_size

NONE = "–"
_SMALL_SECONDS = 0.1
"""times below are told apart in seconds: a share of them says nothing"""
_WORDS = {"commit": "commit of fullstep", "gpu": "GPU", "host_memory_bytes": "memory of the host"}


def what_ran(record: Probe | MeasuredLink) -> str:
    """Model, ranks and devices in a few words; of links ranks, devices and nodes."""
    if isinstance(record, MeasuredLink):
        nodes = "inside a node" if record.nodes == 1 else f"on {record.nodes} nodes"
        where = "processors" if record.device == "cpu" else record.device
        return f"links of {record.ranks} x {where} · {record.backend} {nodes}"
    devices = ", ".join(dict.fromkeys(rank.device for rank in record.ranks))
    if not devices:
        nothing = "1 rank, which left no record" if record.world_size == 1 else f"{record.world_size:,} ranks, none left a record"
        return f"{record.model} · {'no optimizer step was seen' if record.worksheet is None else nothing}"
    return f"{record.model} · {'' if record.world_size == 1 else f'{record.world_size} x '}{devices}"


def link_words(link: MeasuredLink) -> str:
    """Latency and rate of each collective whose sizes give one."""
    fits = [(name, link.fit(name)) for name in LINK_COLLECTIVES]
    said = [f"{name} {time_words(fit.latency_seconds)}, {rate_words(fit.bytes_per_second)}" for name, fit in fits if fit is not None]
    return " · ".join(said) or "sizes too few to tell latency from rate"


def figure_words(value: float | None, unit: str) -> str:
    """A figure with its unit.

    >>> figure_words(3 * 2**30, "bytes"), figure_words(0.0123456, "seconds"), figure_words(None, "bytes"), figure_words(0.125, "fraction")
    ('3.00 GiB', '12.3 ms', '–', '12.5 %')
    """
    if value is None:
        return NONE
    if unit == "bytes":
        return measured_size(value)
    if unit == "fraction":
        return f"{100 * value:.1f} %"
    if unit == "bytes_per_second":
        return rate_words(value)
    if unit == "seconds" and 0 < value < 1:
        return time_words(value)
    number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{number} s" if unit == "seconds" else number


def percent(share: float | None) -> str:
    """A difference, signed.

    >>> percent(0.0123), percent(-0.5), percent(None), percent(0.0), percent(-0.0001)
    ('+1.2 %', '-50.0 %', '', '0', '0.0 %')
    """
    if share is None:
        return ""
    if share == 0:
        return "0"
    rounded = round(100 * share, 1)
    return f"{rounded:+,.1f} %" if rounded else "0.0 %"


def difference_words(first: float | None, second: float | None, unit: str) -> str:
    """The second figure beside the first: in percent of it; shares in percentage points, and short times in seconds.

    >>> difference_words(0.003, 0.026, "fraction"), difference_words(0.002, 0.005, "seconds"), difference_words(2.0, 3.0, "seconds")
    ('+2.3 points', '+3.00 ms', '+50.0 %')
    """
    if first is None or second is None:
        return ""
    if first == second:
        return "0"
    if unit == "fraction":
        points = round(100 * (second - first), 1)
        return f"{points:+.{int(abs(points) < 10)}f} points" if points else "0.0 points"
    if unit == "seconds" and 1e-3 <= max(first, second) < _SMALL_SECONDS:
        return f"{'-' if second < first else '+'}{time_words(abs(second - first))}"
    return percent(second / first - 1) if first > 0 else ""


def key_words(key: str) -> str:
    """What is different between two records, as people say it: worksheet keys as they are, the rest in words.

    >>> key_words("worksheet.batch.micro_batch"), key_words("environment.versions.torch"), key_words("environment.host_memory_bytes")
    ('batch.micro_batch', 'torch', 'memory of the host')
    """
    section, _, rest = key.partition(".")
    if section == "worksheet" and rest:
        return rest
    name = rest.removeprefix("versions.").removeprefix("settings.") if section == "environment" and rest else key
    return _WORDS.get(name, name.removesuffix("_bytes").replace("_", " ") if not name.isupper() else name)


def value_words(key: str, value: Any) -> str:
    """The value of such a key, sizes with their unit.

    >>> value_words("environment.host_memory_bytes", 2**30), value_words("worksheet.step.fused_kernels", ["norm", "loss"])
    ('1.00 GiB', 'norm, loss')
    """
    if value is None or value in ("", []):
        return NONE
    if isinstance(value, list):
        return ", ".join(value_words(key, each) for each in value)
    is_size = key.endswith("_bytes") and type(value) in (int, float)
    return measured_size(value) if is_size else str(value).replace("_", " ") if key == "outcome" else str(value)
