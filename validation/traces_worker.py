"""One warm worker for many traces: libraries are loaded once, each trace has a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from fullstep.job import worksheet_from_mapping
from fullstep.lab.trace.front.process import ENVIRONMENT, WORKER
from fullstep.lab.trace.front.wire import Request, encode_request
from fullstep.models import model_config


def answers(worksheets: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each worksheet's answer: a table with one of the keys trace, faults, unsupported, crash."""
    process = subprocess.Popen(
        [sys.executable, *WORKER, "--many"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT}
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for worksheet in worksheets:
            config, name = model_config(worksheet_from_mapping(worksheet).section("model"))
            process.stdin.write(encode_request(Request(worksheet=worksheet, config=config, name=name)))
            process.stdin.flush()
            yield next(message for message in map(json.loads, process.stdout) if "progress" not in message)
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
