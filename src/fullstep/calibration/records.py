"""Two records side by side: every figure of both, and what else is different between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from fullstep.calibration.recorded import settings_recorded
from fullstep.ledger.link import LINK_COLLECTIVES, MeasuredLink
from fullstep.ledger.probe import Probe, instants_of
from fullstep.quantities import format_binary

Unit = Literal["bytes", "seconds", "tokens_per_second", "fraction", "bytes_per_second"]
_SMALL = ("inputs", "gradients_cleared")
"""phases that are never a peak"""


class Figure(NamedTuple):
    """One figure of a probe, in the unit that it names."""

    group: str
    """peaks, instants, time, rest"""
    what: str
    unit: Unit
    value: float


class ComparedFigure(NamedTuple):
    """The same figure of two probes; None: one of them does not have it."""

    group: str
    what: str
    unit: Unit
    first: float | None
    second: float | None

    @property
    def difference(self) -> float | None:
        """Second over first less 1; None where that says nothing."""
        if self.first is None or self.second is None or self.first <= 0:
            return None
        return self.second / self.first - 1


class ComparedRecords(NamedTuple):
    """Two records of one kind, figure by figure."""

    figures: tuple[ComparedFigure, ...]
    differing: tuple[tuple[str, Any, Any], ...]
    """what they ran that is not the same: dotted key, first, second; None: not stated"""


def compare_probes(first: Probe, second: Probe) -> ComparedRecords:
    """Every figure that one of them has."""
    return _compared(figures_of(first), figures_of(second), (_circumstances(first), _circumstances(second)))


def compare_links(first: MeasuredLink, second: MeasuredLink) -> ComparedRecords:
    """Latency, rate and the median of each size, collective by collective."""
    return _compared(link_figures_of(first), link_figures_of(second), (_of_link(first), _of_link(second)))


def _compared(first: list[Figure], second: list[Figure], circumstances: tuple[dict[str, Any], dict[str, Any]]) -> ComparedRecords:
    ones, others = ({(each.group, each.what): each for each in figures} for figures in (first, second))
    keys = sorted({**ones, **others}, key=lambda key: _ORDER.index(key[0]))  # stable: within a group as they come
    rows = []
    for key in keys:
        one, other = ones.get(key), others.get(key)
        unit = (one or other).unit  # type: ignore[union-attr]
        rows.append(ComparedFigure(*key, unit, None if one is None else one.value, None if other is None else other.value))
    return ComparedRecords(tuple(rows), tuple(_differing(*circumstances)))


_ORDER = ("peaks", "instants", "time", "rest", *LINK_COLLECTIVES)
_NO_CIRCUMSTANCE = (
    "environment.began", "environment.ended", "environment.busy", "environment.last_lines", "environment.released_unseen_bytes",
)  # fmt: skip
"""what is different between any two records, and results of their own"""


def figures_of(probe: Probe) -> list[Figure]:
    """Those that were measured: peaks over all ranks, instants of the worst one, times of the slowest one."""
    worst, seconds = probe.worst, probe.step_seconds
    instants = {} if worst is None else instants_of(worst.memory)
    ran_out = probe.out_of_memory
    ranks = probe.ranks
    rows: list[tuple[str, str, Unit, float | None]] = [
        ("peaks", "allocated", "bytes", probe.largest("allocated_peak_bytes")),
        ("peaks", "reserved", "bytes", probe.largest("reserved_peak_bytes")),
        ("peaks", "device", "bytes", probe.largest("device_used_bytes")),
        ("peaks", "needed where memory ran out, at least", "bytes", None if ran_out is None else ran_out.enough_bytes),
        *(("instants", at.replace("_", " "), "bytes", float(size)) for at, size in instants.items() if at not in _SMALL),
        ("time", "step, median", "seconds", probe.median_step_seconds),
        ("time", "step, shortest", "seconds", min(seconds, default=None)),
        ("time", "step, longest", "seconds", max(seconds, default=None)),
        ("time", "tokens per second", "tokens_per_second", probe.tokens_per_second),
        ("time", "waiting for data", "fraction", probe.data_wait_fraction),
        ("time", "exposed communication", "fraction", probe.exposed_communication_fraction),
        ("rest", "host memory of a rank", "bytes", _most([rank.host_peak_bytes for rank in ranks])),
        ("rest", "evaluation", "seconds", _most([rank.evaluation_seconds for rank in ranks])),
        ("rest", "save", "seconds", _most([rank.save_seconds for rank in ranks])),
        ("rest", "save, a rank", "bytes", _most([rank.save_bytes for rank in ranks])),
    ]
    return [Figure(group, what, unit, float(value)) for group, what, unit, value in rows if value is not None]


def link_figures_of(link: MeasuredLink) -> list[Figure]:
    """Latency and rate of the line of each collective [s, B/s], and the median time of each size [s]."""
    rows: list[Figure] = []
    for name in LINK_COLLECTIVES:
        if (fit := link.fit(name)) is not None:
            rows.append(Figure(name, "latency", "seconds", fit.latency_seconds))
            rows.append(Figure(name, "rate", "bytes_per_second", fit.bytes_per_second))
        rows += [Figure(name, format_binary(each.size_bytes), "seconds", each.median_seconds) for each in link.of(name)]
    return rows


def program_words(probe: Probe) -> str:
    """Strategy, method and rows of what a worksheet's probe ran, as completed; what is stated where the model is not known here; empty of a
    command."""
    sheet = probe.worksheet
    if sheet is None:
        return ""
    settings = settings_recorded(probe)
    if settings is not None:
        batch = settings.batch
        rows = f"{batch.micro_batch} x {batch.sequence_tokens:,} tokens"
        return f"{settings.layout.strategy} · {settings.method.kind} · {rows} · accumulation {batch.accumulation}"
    keys = ("layout.strategy", "method.kind", "batch.micro_batch", "batch.sequence_tokens")
    stated = _flat("worksheet", sheet)
    return " · ".join(f"{key} {stated[name]}" for key in keys if (name := f"worksheet.{key}") in stated)


def _of_link(link: MeasuredLink) -> dict[str, Any]:
    """What its figures depend on, by dotted key."""
    said: dict[str, Any] = {"ranks": link.ranks, "nodes": link.nodes, "devices": link.device, "backend": link.backend}
    said |= {"network_gbit_s": link.network_gbit_s, "environment.processors": link.processors, "iterations": link.iterations}
    return said | _flat("environment.versions", link.versions) | _flat("environment.settings", link.settings)


def _most(values: list[Any]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _circumstances(probe: Probe) -> dict[str, Any]:
    """What a figure depends on, by dotted key."""
    devices = ", ".join(dict.fromkeys(rank.device for rank in probe.ranks))
    said = {"outcome": probe.outcome, "model": probe.model, "ranks": probe.world_size, "devices": devices, "seed": probe.seed}
    return said | _flat("worksheet", probe.worksheet or {}) | _flat("environment", probe.environment)


def _flat(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    return {key: each for part, inner in value.items() for key, each in _flat(f"{name}.{part}", inner).items()}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    keys = (key for key in dict.fromkeys([*one, *other]) if key not in _NO_CIRCUMSTANCE)
    return [(key, one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)]
