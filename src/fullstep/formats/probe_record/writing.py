"""A probe as the table that its record is."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.formats.probe_record.schema import KIND, MEMORY, OVERLAP, SCHEMA, STEPS
from fullstep.ledger.probe import Probe, ProbedRank

LARGEST_BYTES = 16 * 1024 * 1024
"""of a record: a few hundred ranks with a few steps each"""
_THINNED = "the record leaves out memory of all steps but the last: it would be too large"


def record_of(probe: Probe) -> dict[str, Any]:
    """The record: JSON values only, the digest of the rest in ``sha256``."""
    out_of_memory = probe.out_of_memory
    rest = {
        "kind": KIND,
        "schema": SCHEMA,
        "made": probe.made,
        "command": list(probe.command),
        "seed": probe.seed,
        "outcome": {"what": probe.outcome, "reason": probe.reason},
        "model": {"name": probe.model, "parameters": probe.parameters, "trainable_parameters": probe.trainable_parameters},
        "worksheet": None if probe.worksheet is None else _plain(probe.worksheet),
        "environment": _plain(probe.environment),
        "world_size": probe.world_size,
        "ranks": [_rank(rank) for rank in probe.ranks],
        "out_of_memory": None if out_of_memory is None else out_of_memory._asdict(),
        "summary": summary_of(probe),
        "profile": _plain(probe.profile),
        "notes": list(probe.notes),
    }
    return sealed(rest)


def record_text(probe: Probe) -> str:
    """The record as it stands in its file, a line for every sample.

    Raises:
        InputError: it would be larger than a record may be, even with memory of the last step only
    """
    text = table_text(record_of(probe))
    if len(text) > LARGEST_BYTES:
        text = table_text(record_of(_thinned(probe)))
    if len(text) > LARGEST_BYTES:
        found = f"a record of {len(text):,} bytes"
        raise InputError(Fault("probe", found, f"at most {LARGEST_BYTES:,}", "Probe fewer steps, or fewer micro-batches of a step."))
    return text


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the digest of what it holds.

    Args:
        record: values of JSON alone, without ``sha256``
    """
    return {**record, "sha256": digest_of(record)}


def digest_of(rest: Mapping[str, Any]) -> str:
    """SHA-256 of a record without its ``sha256``, whatever the order of its keys and its white space."""
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def summary_of(probe: Probe) -> dict[str, Any]:
    """What the samples come to."""
    worst, seconds = probe.worst, probe.step_seconds
    peak = None if worst is None else worst.peak
    return {
        "allocated_peak_bytes": probe.largest("allocated_peak_bytes"),
        "reserved_peak_bytes": probe.largest("reserved_peak_bytes"),
        "device_peak_bytes": probe.largest("device_used_bytes"),
        "peak_rank": None if worst is None else worst.rank,
        "peak_at": None if peak is None else peak.phase,
        "step_seconds": {"low": min(seconds), "median": probe.median_step_seconds, "high": max(seconds)} if seconds else None,
        "tokens_per_second": probe.tokens_per_second,
        "data_wait_fraction": probe.data_wait_fraction,
        "exposed_communication_fraction": probe.exposed_communication_fraction,
    }


def _rank(rank: ProbedRank) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "device": rank.device,
        "host_peak_bytes": rank.host_peak_bytes,
        "evaluation_seconds": rank.evaluation_seconds,
        "save_seconds": rank.save_seconds,
        "save_bytes": rank.save_bytes,
        "memory": _table(MEMORY.names, rank.memory),
        "steps": _table(STEPS.names, rank.steps),
        "overlap": _table(OVERLAP.names, rank.overlap),
    }


def _table(names: list[str], samples: Sequence[Any]) -> dict[str, Any]:
    return {"columns": names, "rows": [[getattr(sample, name) for name in names] for sample in samples]}


def _plain(value: Any) -> Any:
    """JSON's own types; null in place of numbers that it does not have, text of anything else."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _thinned(probe: Probe) -> Probe:
    last = max((stretch.step for rank in probe.ranks for stretch in rank.memory), default=0)
    ranks = tuple(replace(rank, memory=tuple(each for each in rank.memory if each.step in (0, last))) for rank in probe.ranks)
    return replace(probe, ranks=ranks, notes=(*probe.notes, _THINNED))


def table_text(record: Mapping[str, Any]) -> str:
    """Indented, but each row of a table on one line.

    >>> print(table_text({"rows": [[1, "a"], [2, "b"]], "n": 1}))
    {
      "rows": [
        [1, "a"],
        [2, "b"]
      ],
      "n": 1
    }
    <BLANKLINE>
    """
    return "\n".join(_lines(dict(record), "")) + "\n"


def _lines(value: Any, margin: str) -> list[str]:
    if not isinstance(value, (dict, list)) or not any(isinstance(each, (dict, list)) for each in _parts(value)):
        return [json.dumps(value, allow_nan=False)]
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    lines, inner, last = [], margin + "  ", len(value) - 1
    for index, (name, each) in enumerate(zip(names, _parts(value), strict=True)):
        first, *more = _lines(each, inner)
        piece = [inner + name + first, *more]
        lines += [*piece[:-1], piece[-1] + ("" if index == last else ",")]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return [begin, *lines, margin + end]


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)
