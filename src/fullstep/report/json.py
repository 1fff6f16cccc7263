"""The answer as JSON, by the contract: bytes are whole numbers, what is not answered is null and says why."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import Any

from fullstep import __version__
from fullstep.errors import InputError
from fullstep.evidence import Assumption
from fullstep.ledger import HOLDINGS, Answer, HostMemory, Instant, Memory, Timing
from fullstep.report.checkpoint_json import checkpoint_as_dict
from fullstep.report.timing_json import run_as_dict, step_as_dict, traffic_as_dict

SCHEMA = 1
_NOT_ASKED = dict.fromkeys(("step", "traffic", "run", "checkpoint"), "not part of this answer")
_lean = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_readable = json.JSONEncoder(indent=2, allow_nan=False).encode


@lru_cache(maxsize=4096, typed=True)
def _assumption_as_text(key: str, value: object, why: str) -> str:
    return _lean({"key": key, "value": value, "why": why})


def _assumption_text(assumption: Assumption) -> str:
    return _assumption_as_text(*assumption)


def answer_as_dict(answer: Answer) -> dict[str, Any]:
    """One answer as the contract's object."""
    document = _all_but_assumptions(answer)
    document["assumptions"] = [{"key": key, "value": value, "why": why} for key, value, why in (*answer.assumptions, *open_parts(answer))]
    return document


def open_parts(answer: Answer) -> list[Assumption]:
    """Parts of the answer that are null, and why."""
    known = _NOT_ASKED if answer.timing is None else dict(answer.timing.open)
    return [Assumption(part, None, why) for part, why in known.items()]


def answer_line(answer: Answer) -> str:
    """The same object on one line, without a line end. The same defaults come again and again: each is written once and kept."""
    try:
        assumptions = ",".join(map(_assumption_text, (*answer.assumptions, *open_parts(answer))))
    except TypeError:  # a value that cannot be remembered, like a list
        return _lean(answer_as_dict(answer))
    return f'{_lean(_all_but_assumptions(answer))[:-1]},"assumptions":[{assumptions}]}}'


def _all_but_assumptions(answer: Answer) -> dict[str, Any]:
    timing = answer.timing or Timing(None, None, None, ())
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "model": {"parameters": answer.parameters, "trainable_parameters": answer.trainable_parameters},
        "memory": _memory(answer.memory),
        "host": _host(answer.host),
        "step": step_as_dict(timing.step, timing.flop),
        "traffic": traffic_as_dict(timing.traffic),
        "checkpoint": checkpoint_as_dict(answer.checkpoint),
        "run": run_as_dict(timing.run),
        **({"measured": {key: _comparison(row) for key, row in answer.measured.items()}} if answer.measured else {}),
        "warnings": [{"code": code, "text": text} for code, text in answer.warnings],
        **_trace(answer),
    }


def _trace(answer: Answer) -> dict[str, Any]:
    if answer.trace is None:
        return {}
    from fullstep.report.trace_json import trace_as_dict  # noqa: PLC0415 (an estimate has none)

    return {"trace": trace_as_dict(answer.trace, answer.estimated)}


def error_as_dict(error: Exception) -> dict[str, Any]:
    """A bad worksheet as the contract's object: the whole text, and the faults one by one."""
    if not isinstance(error, InputError):
        return {"error": f"a fault of fullstep itself: {type(error).__name__}: {error}", "faults": []}
    faults = [{"where": f.where, "found": f.found, "allowed": f.allowed, "remedy": f.remedy} for f in error.faults]
    return {"error": str(error), "faults": faults}


def dump_line(value: dict[str, Any]) -> str:
    """One object on one line, without a line end."""
    return _lean(value)


def dump_rows(value: dict[str, Any], rows: str) -> str:
    """One object whose list ``rows`` is long: each entry of it on a line of its own, without a line end.

    >>> print(dump_rows({"schema": 1, "options": [{"a": 1}, {"a": 2}], "missing": []}, "options"))
    {"schema":1,"missing":[],"options":[
    {"a":1},
    {"a":2}
    ]}
    """
    others = _lean({key: each for key, each in value.items() if key != rows})
    entries = ",\n".join(map(_lean, value[rows]))
    return f'{others[:-1]},"{rows}":[\n{entries}\n]}}'


def finite(value: Any) -> Any:
    """The same with null in place of numbers that JSON does not have.

    >>> finite({"a": [1.5, float("inf")], "b": (float("nan"), "inf")})
    {'a': [1.5, None], 'b': [None, 'inf']}
    """
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump(value: dict[str, Any]) -> str:
    """One object for people and programs, indented, without a line end."""
    return _readable(value)


def _memory(memory: Memory) -> dict[str, Any]:
    instants = [instant_as_dict(instant) for instant in memory.instants]
    return {
        "evidence": memory.evidence,
        "allocated_peak_bytes": _allocated(memory, max(instant["allocated_bytes"] for instant in instants)),
        "reserved_peak_bytes": memory.reserved_peak_bytes.as_whole(),
        "device_peak_bytes": memory.device_peak_bytes.as_whole(),
        "needed_bytes": memory.needed_bytes.as_whole(),
        "peak_at": memory.peak_at,
        "instants": instants,
        "other_peaks": {name: None if peak is None else round(peak) for name, peak in memory.other_peaks._asdict().items()},
        "usable_bytes": memory.usable_bytes,
        "verdict": memory.verdict,
        "reason": memory.reason,
    }


def _allocated(memory: Memory, largest: int) -> dict[str, int]:
    """Whole bytes. An estimated peak is that of the largest instant to the byte, whose holdings are rounded one by one."""
    whole = memory.allocated_peak_bytes.as_whole()
    likely = whole["likely"]
    if memory.evidence == "measured" or abs(largest - likely) > len(HOLDINGS):  # a pilot's figure; not a matter of rounding
        return whole
    likely = largest
    return {"low": min(whole["low"], likely), "likely": likely, "high": max(whole["high"], likely)}


def instant_as_dict(instant: Instant) -> dict[str, Any]:
    """One instant; the whole bytes of its holdings add up to its own."""
    holdings = [round(size) for size in instant.holdings]
    return {
        "at": instant.at,
        "allocated_bytes": sum(holdings),
        "holdings": dict(zip(HOLDINGS, holdings, strict=True)),
        "place": instant.place,
    }


def _host(host: HostMemory) -> dict[str, Any]:
    return {"evidence": host.evidence, "memory_peak_bytes": round(host.memory_peak_bytes), "at": host.at, "verdict": host.verdict}


def _comparison(row: Any) -> dict[str, Any]:
    said = {"measured": row.measured, "estimated": None if row.estimated is None else row.estimated.as_dict()}
    return said if row.traced is None else {**said, "traced": row.traced.as_dict()}
