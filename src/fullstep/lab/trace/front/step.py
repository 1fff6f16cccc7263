"""One trace from a worksheet's settings: from the cache, or by a worker process that is asked and heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.job import Settings, Worksheet
from fullstep.job.keys import BY_DOTTED
from fullstep.lab.libraries import library_versions, require_libraries
from fullstep.lab.trace.front.cache import cache_key, keep_trace, kept_trace
from fullstep.lab.trace.front.limits import faults_of
from fullstep.lab.trace.front.process import REPORT, Worker, started
from fullstep.lab.trace.front.snapshot import written_when_done
from fullstep.lab.trace.front.wire import Request, WireError, decode_faults, decode_trace, encode_request
from fullstep.ledger import Trace

LIMIT_SECONDS = 900.0
_TRACEBACK_LINES = 12


def trace_step(
    settings: Settings,
    config: Mapping[str, Any],
    name: str,
    *,
    full_depth: bool = False,
    snapshot: Path | None = None,
    progress: Callable[[str], None] | None = None,
    cache: bool = True,
    limit_seconds: float = LIMIT_SECONDS,
) -> Trace:
    """One full step of the real model class, traced in a process of its own on tensors without data.

    Args:
        settings: of the worksheet
        config: the model's Hugging Face config (:func:`fullstep.models.model_config`)
        name: of the model, for messages
        full_depth: trace every block, where otherwise equal blocks are traced a few times and repeated
        snapshot: a file to write that PyTorch's memory viewer opens; one that is there is overwritten, once the trace is done
        progress: is told the stages as they come, and again while one lasts; an exception from it stops the trace
        cache: take the trace from the cache where it was made before (with 0 seconds; never with ``snapshot``), and keep it there
        limit_seconds: the trace is stopped after this time

    Raises:
        InputError: torch, transformers or peft is missing or too old, the worksheet is at fault, or (UnsupportedError) a trace does
            not cover it
        LabError: the worker died, crashed, made no sense or took too long; nothing is left behind
    """
    if faults := faults_of(settings):
        raise UnsupportedError(*(_in_worksheet(fault, settings.worksheet) for fault in faults))
    require_libraries("trace")
    key = cache_key(settings, config, name, full_depth=full_depth, versions=library_versions()) if cache else ""
    if cache and snapshot is None and (kept := kept_trace(key)) is not None:
        return kept
    with written_when_done(snapshot) as path:
        request = Request(settings.worksheet.as_dict(), dict(config), name, full_depth, path)
        with started(encode_request(request), progress) as worker:
            trace = _trace(worker, worker.answer(limit_seconds), settings.worksheet)
            if path is not None and not Path(path).exists():
                raise worker.error("wrote no snapshot", REPORT)
    if cache:
        keep_trace(key, trace)
    return trace


def _trace(worker: Worker, answer: Mapping[str, Any], worksheet: Worksheet) -> Trace:
    """The trace in an answer; what else it may hold becomes an error."""
    try:
        if "trace" in answer:
            return decode_trace(answer["trace"])
        if "faults" in answer:
            raise InputError(*(_in_worksheet(fault, worksheet) for fault in decode_faults(answer["faults"])))
        if "unsupported" in answer:
            raise UnsupportedError(*(_in_worksheet(fault, worksheet) for fault in decode_faults(answer["unsupported"])))
    except WireError as error:
        raise worker.error(f"answered with something that is no message: {error}", REPORT) from None
    lines = str(answer.get("traceback") or "").splitlines()[-_TRACEBACK_LINES:]
    raise worker.error(f"crashed: {str(answer['crash'])[:300]}", REPORT, lines)


def _in_worksheet(fault: Fault, worksheet: Worksheet) -> Fault:
    """The fault at its file and line, where it names a key: the worker knows the worksheet's values alone."""
    key, colon, inside = fault.where.removeprefix("worksheet: ").partition(": ")
    if key not in BY_DOTTED:
        return fault
    return Fault(f"{worksheet.where(key)}{colon}{inside}", fault.found, fault.allowed, fault.remedy)
