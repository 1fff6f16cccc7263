"""One warm worker for all traces of a test session: libraries are loaded once, every trace has a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fullstep.job import worksheet_from_mapping
from fullstep.lab.trace.front.process import ENVIRONMENT, WORKER
from fullstep.lab.trace.front.wire import Request, decode_trace, encode_request
from fullstep.ledger import Trace
from fullstep.models import model_config

Ask = Callable[..., dict[str, Any]]
Measure = Callable[[Callable[[], Any]], int]
Traced = Callable[..., Trace]


@pytest.fixture(scope="session")
def ask() -> Iterator[Ask]:
    """A worksheet to the worker's answer: a table with one of the keys trace, faults, unsupported, crash."""
    process = subprocess.Popen(
        [sys.executable, *WORKER, "--many"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT}
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def send(worksheet: dict[str, Any], *, full_depth: bool = False, config: dict[str, Any] | None = None) -> dict[str, Any]:
        if config is None:
            config, name = model_config(worksheet_from_mapping(worksheet).section("model"))
        else:
            name = "test"
        process.stdin.write(encode_request(Request(worksheet=worksheet, config=config, name=name, full_depth=full_depth)))
        process.stdin.flush()
        while True:
            message: dict[str, Any] = json.loads(process.stdout.readline())
            if "progress" not in message:
                return message

    yield send
    process.stdin.close()
    process.wait(60)
    process.stdout.close()


@pytest.fixture(scope="session")
def traced(ask: Ask) -> Traced:
    """A worksheet to its trace."""

    def trace(worksheet: dict[str, Any], *, full_depth: bool = False) -> Trace:
        answer = ask(worksheet, full_depth=full_depth)
        assert "trace" in answer, answer
        return decode_trace(answer["trace"])

    return trace


@pytest.fixture
def recorder() -> Iterator[Any]:
    """A recorder around the test: tensors are fake, and all that are made are seen."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - the libraries of the extra lab

    from fullstep.lab.trace.worker.places import Places  # noqa: PLC0415
    from fullstep.lab.trace.worker.recorder import Recorder  # noqa: PLC0415
    from fullstep.lab.trace.worker.workspaces import Workspaces  # noqa: PLC0415

    with FakeTensorMode() as mode, Recorder(mode, Places(), Workspaces(None)) as found:
        yield found


@pytest.fixture
def worst(recorder: Any) -> Measure:
    """A function to the most bytes that there were while it ran, beside those before it; what is on the host does not count."""

    def measure(run: Callable[[], Any]) -> int:
        stream, first = recorder.stream, len(recorder.stream.which)
        kept = run()
        now = most = 0
        for which, size in zip(stream.which[first:], stream.sizes[first:], strict=True):
            record = stream.tensors[which]
            if record.holding != "host":
                now += size if size >= 0 else -record.size_bytes
                most = max(most, now)
        del kept
        return most

    return measure
