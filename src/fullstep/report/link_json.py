"""A measured link as one JSON object: every call's seconds, what they come to, and what was assumed beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fullstep import __version__
from fullstep.ledger.link import LINK_COLLECTIVES, AssumedLink, MeasuredLink
from fullstep.report.json import finite


def link_as_dict(measured: MeasuredLink, assumed: Sequence[AssumedLink], assumed_of: str, command: list[str]) -> dict[str, Any]:
    """Sizes in bytes, times in seconds, rates in bytes per second.

    Args:
        measured: what was seen
        assumed: what the network model says of it
        assumed_of: what it took this machine for, or why it knows nothing of it
        command: that made it, as it was typed
    """
    beside = {each.collective: each for each in assumed}
    found: dict[str, Any] = finite({
        "kind": "fullstep link",
        "schema": 1,
        "fullstep": __version__,
        "evidence": "measured",
        "made": measured.made,
        "command": command,
        "environment": {
            "device": measured.device, "backend": measured.backend, "ranks": measured.ranks, "nodes": measured.nodes,
            "network_gbit_s": measured.network_gbit_s, "processors": measured.processors, "versions": dict(measured.versions),
            "settings": dict(measured.settings),
        },
        "iterations": measured.iterations,
        "warm_up": measured.warm_up,
        "samples": [
            {"collective": each.collective, "size_bytes": each.size_bytes, "seconds": list(each.seconds)} for each in measured.samples
        ],
        "summary": [_summary(name, measured, beside.get(name)) for name in LINK_COLLECTIVES],
        "assumed_of": assumed_of,
        "notes": list(measured.notes),
        "seconds": measured.seconds,
    })  # fmt: skip
    return found


def _summary(name: str, measured: MeasuredLink, assumed: AssumedLink | None) -> dict[str, Any]:
    fit = measured.fit(name)
    return {
        "collective": name,
        "missing": measured.missing.get(name),
        "sizes": [each.figures for each in measured.of(name)],
        "fit": None if fit is None else fit._asdict(),
        "assumed": None if assumed is None else _assumed(assumed),
    }


def _assumed(assumed: AssumedLink) -> dict[str, Any]:
    return {
        "latency_seconds": assumed.latency_seconds.as_dict(),
        "sizes": [{"size_bytes": size, "seconds": seconds.as_dict()} for size, seconds in assumed.seconds],
        "fit": None if assumed.fit is None else assumed.fit._asdict(),
    }
