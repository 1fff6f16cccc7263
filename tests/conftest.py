"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
if "EXAMPLES" not in os.environ:  # the deep search of `make test-slow` looks elsewhere each time
    settings.load_profile("repeatable")

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
"""the same kernels on every machine, in every process: those for units for bfloat16 pack matrices into memory that the allocator hands out.
oneDNN reads it when it is first used"""


@pytest.fixture(scope="session", autouse=True)
def _signals_as_usual() -> Iterator[None]:
    """Whoever runs the tests in the background may have them ignored, and every process that a test starts would inherit that."""
    ignored: list[tuple[signal.Signals, Any]] = [(signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)]
    usual = dict([(signal.SIGINT, signal.default_int_handler), *ignored])
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def _nobodys_prices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads prices that whoever runs it has fetched, or machines that they have."""
    before = {name: os.environ.pop(name, None) for name in ("XDG_CACHE_HOME", "FULLSTEP_MACHINES")}
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
