"""The fake worker in the worker's place, and a cache and temporary folder of the test's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.lab.trace import trace_step
from fullstep.lab.trace.front import process, step
from fullstep.ledger import Trace

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture(autouse=True)
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Also where torch is not installed."""
    script = Path(__file__).with_name("fake_worker.py")
    monkeypatch.setattr(process, "WORKER", (str(script),))
    monkeypatch.setattr(step, "require_libraries", lambda _: None)
    return script


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FULLSTEP_CACHE", raising=False)
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def settings() -> Callable[..., Settings]:
    """Settings of a worksheet with these sections."""

    def made(**sections: dict[str, Any]) -> Settings:
        return settings_of(worksheet_from_mapping({"model": {"config": CONFIG}, **sections}, "job.toml"))

    return made


@pytest.fixture
def traced(settings: Callable[..., Settings]) -> Callable[..., Trace]:
    """A trace of a model whose name says how the fake worker behaves; without the cache unless that is asked for."""

    def made(name: str = "good", **options: Any) -> Trace:
        return trace_step(settings(), CONFIG, name, **{"cache": False, **options})

    return made
