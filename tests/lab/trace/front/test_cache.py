"""A second trace of the same thing is taken from the cache; anything that could change it asks the worker again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fullstep.errors import LabError
from fullstep.job import Settings
from fullstep.lab.trace import trace_step
from fullstep.lab.trace.front import cache
from fullstep.ledger import Trace

CONFIG = {"model_type": "llama", "hidden_size": 64}
Traced = Callable[..., Trace]
Made = Callable[..., Settings]


def entries(cache_home: Path) -> list[Path]:
    return sorted((cache_home / "fullstep" / "traces").glob("*"))


def stages_of(traced: Traced, **options: Any) -> list[str]:
    """What the worker reports; nothing where it is not asked."""
    stages: list[str] = []
    traced(cache=True, progress=stages.append, **options)
    return stages


def test_the_second_trace_takes_no_time(traced: Traced, cache_home: Path) -> None:
    first = traced(cache=True)
    assert len(entries(cache_home)) == 1
    assert stages_of(traced) == []
    assert traced(cache=True) == first._replace(seconds=0)


def test_without_it_nothing_is_read_or_written(traced: Traced, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced(cache=False)
    assert not cache_home.exists()
    monkeypatch.setenv("FULLSTEP_CACHE", "off")
    assert stages_of(traced) != []
    assert stages_of(traced) != []
    assert not cache_home.exists()


def test_a_failure_is_not_kept(traced: Traced, cache_home: Path) -> None:
    with pytest.raises(LabError):
        traced("killed", cache=True)
    assert not cache_home.exists()


def test_a_snapshot_is_made_anew(traced: Traced, tmp_path: Path) -> None:
    traced(cache=True)
    assert stages_of(traced, snapshot=tmp_path / "step.pickle") != []
    assert (tmp_path / "step.pickle").exists()


def key(it: Settings, config: dict[str, Any] = CONFIG, **options: Any) -> str:
    return cache.cache_key(it, config, "tiny", **{"full_depth": False, "versions": {"torch": "2.13.0"}, **options})


@pytest.mark.parametrize(
    "sections",
    [
        {"method": {"kind": "lora"}}, {"method": {"kind": "full"}}, {"precision": {"weights": "float32"}}, {"optimizer": {"name": "sgd"}},
        {"batch": {"micro_batch": 2}}, {"batch": {"packed": False}}, {"step": {"activation_checkpointing": "full"}},
        {"machine": {"gpus": 2}}, {"machine": {"gpus": 2}, "layout": {"strategy": "ddp"}}, {"machine": {"gpu": "H100-SXM"}},
        {"machine": {"gpu": "H200-SXM"}}, {"machine": {"gpu": "H100-SXM", "gpu_memory_gib": 40}}, {"machine": {"gpus": 2, "nodes": 2}},
    ],
    ids=str,
)  # fmt: skip
def test_what_decides_a_trace_is_in_the_key(sections: dict[str, Any], settings: Made) -> None:
    assert key(settings(**sections)) != key(settings())


@pytest.mark.parametrize(
    "sections",
    [
        {"goal": {"budget": "100"}}, {"data": {"tokens": 10**6}}, {"checkpoint": {"keep": 3}}, {"measured": {"step_seconds": 2}},
        {"plan": {"fixed": ["step.loss"]}}, {"evaluation": {"rows": 5}},
        {"machine": {"network_gbit_s": 100, "host_memory_gib": 512, "disk_gb": 10**4}},
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_is_not(sections: dict[str, Any], settings: Made) -> None:
    assert key(settings(**sections)) == key(settings())


def test_config_versions_depth_and_code_are_in_the_key(settings: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    it = settings()
    usual = key(it)
    assert key(it, dict(reversed(CONFIG.items()))) == usual
    keys = {usual, key(it, {**CONFIG, "hidden_size": 65}), key(it, full_depth=True), key(it, versions={"torch": "2.14.0"})}
    monkeypatch.setattr("fullstep.__version__", "0.0.1")
    keys.add(key(it))
    monkeypatch.setattr(cache, "_sources_digest", lambda: "other code")
    keys.add(key(it))
    assert len(keys) == 6


@pytest.mark.parametrize("name", ["lab/trace/worker.py", "hardware/data/cards.csv"])
def test_the_digest_follows_code_and_tables(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text("x = 1")
    monkeypatch.setattr("fullstep.__file__", str(tmp_path / "__init__.py"))
    digest = cache._sources_digest.__wrapped__
    before = digest()
    assert digest() == before
    file.write_text("x = 2")
    assert digest() != before


@pytest.mark.parametrize("damage", ["empty", "half", "one byte", "no JSON", "other fields", "folder"])
def test_a_damaged_entry_is_ignored_and_overwritten(damage: str, traced: Traced, cache_home: Path) -> None:
    traced(cache=True)
    (entry,) = entries(cache_home)
    whole = entry.read_bytes()
    if damage == "folder":
        entry.unlink()
        entry.mkdir()
        assert stages_of(traced) != []
        assert [path.suffix for path in entries(cache_home)] == [".json"]
        return
    text = {"no JSON": b"[[", "other fields": b'{"parameters": 1}'}.get(damage, b"")
    signed = cache.hashlib.sha256(text).hexdigest().encode() + b"\n" + text
    entry.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "one byte": whole.replace(b"1000", b"1001")}.get(damage, signed))
    assert stages_of(traced) != []
    assert entry.read_bytes() == whole
    assert stages_of(traced) == []


def test_the_oldest_entries_go(traced: Traced, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache_home / "fullstep" / "traces"
    folder.mkdir(parents=True)
    for number in range(5):
        (folder / f"{number}.json").write_text("old")
        os.utime(folder / f"{number}.json", (number, number))
    (folder / "half.part").write_text("left behind")
    os.utime(folder / "half.part", (0, 0))
    (folder / "README").write_text("somebody's own")
    monkeypatch.setattr(cache, "MOST_ENTRIES", 3)
    traced(cache=True)
    assert len(entries(cache_home)) == 4
    assert {path.name for path in entries(cache_home)} >= {"README", "3.json", "4.json"}
    assert stages_of(traced) == []


@pytest.mark.parametrize("stated", ["/dev/null", "relative", ""])
def test_a_cache_that_cannot_be_is_no_error(stated: str, traced: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", stated)
    monkeypatch.setenv("HOME", "/dev/null")
    assert stages_of(traced) != []
    assert stages_of(traced) != []
    assert not (tmp_path / "relative").exists()


def test_the_home_folder_is_the_usual_place(traced: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    traced(cache=True)
    assert len(entries(tmp_path / ".cache")) == 1


def test_settings_with_tables_of_any_kind(settings: Made) -> None:
    config = {"model_type": "x", "rope_scaling": {"factor": 8.0, "list": [1, None, float("inf")]}}
    it = settings(method={"kind": "vera", "targets": "all-linear"})
    assert trace_step(it, config, "good").seconds == 1.5
    assert trace_step(it, config, "good").seconds == 0
