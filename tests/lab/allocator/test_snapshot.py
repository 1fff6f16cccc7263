"""The snapshot file: what torch's own tools make of it, and that it says what the replay says."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from fullstep.lab.allocator import RELEASE, AllocatorSettings, Event, Frame, Frames, replay, write_snapshot

MIB = 1 << 20
MODEL: Frames = (Frame("model.py", 12, "forward"), Frame("train.py", 3, "<module>"))
LOSS: Frames = (Frame("loss.py", 5, "cross_entropy"), Frame("train.py", 3, "<module>"))

VIEWER_KNOWS = {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE"),
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"),
    *("APPEND", "APPENDS", "LIST", "DICT", "SETITEM", "SETITEMS", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
}
"""of pickle's operations, by ``unpickle`` in torch's ``MemoryViz.js``"""


def training(blocks: int = 40) -> tuple[list[Event], list[Frames], list[str]]:
    """Weights, a forward pass that keeps some of what it makes, a backward pass that releases it."""
    events: list[Event] = [(index, 3 * MIB + 512 * index, 0) for index in range(blocks)]
    for index in range(blocks):
        events += [(1000 + index, (1 + index % 7) * MIB, 0), (2000 + index, 700 * (index + 1), 5), (2000 + index, RELEASE, 5)]
    for index in reversed(range(blocks)):
        events += [(3000, 25 * MIB, 0), (1000 + index, RELEASE, 0), (3000, RELEASE, 0)]
    frames = [MODEL if tensor < 3000 else LOSS for tensor, _, _ in events]
    return events, frames, ["weights" if tensor < 1000 else "activations" if tensor < 2000 else "" for tensor, _, _ in events]


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(path.read_bytes())
    return found


SETTINGS = [
    pytest.param(AllocatorSettings(), id="segments"),
    pytest.param(AllocatorSettings(expandable_segments=True), id="expandable"),
    pytest.param(AllocatorSettings(max_split_bytes=24 * MIB, roundup_power2_divisions=(4,)), id="split_and_rounding"),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_it_says_what_the_replay_says(tmp_path: Path, settings: AllocatorSettings) -> None:
    events, frames, categories = training()
    write_snapshot(tmp_path / "snapshot.pickle", events, settings, frames=frames, categories=categories)
    done = replay(events, settings)
    snapshot = read(tmp_path / "snapshot.pickle")
    segments = snapshot["segments"]
    assert len(segments) == done.segments
    assert sum(segment["total_size"] for segment in segments) == done.reserved_bytes
    assert sum(segment["allocated_size"] for segment in segments) == done.allocated_bytes
    assert all(segment["is_expandable"] == settings.expandable_segments for segment in segments)
    (trace,) = snapshot["device_traces"]
    reserved = peak = 0
    for entry in trace:
        sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}.get(entry["action"], 0)
        reserved += sign * entry["size"]
        peak = max(peak, reserved)
    assert (reserved, peak) == (done.reserved_bytes, done.peak_reserved_bytes)
    asked = [(entry["size"], entry["stream"]) for entry in trace if entry["action"] == "alloc"]
    assert asked == [(size, stream) for _, size, stream in events if size > 0]


def test_blocks_in_use_are_those_that_the_trace_leaves(tmp_path: Path) -> None:
    events, frames, categories = training()
    write_snapshot(tmp_path / "snapshot.pickle", events, frames=frames, categories=categories)
    snapshot = read(tmp_path / "snapshot.pickle")
    left: dict[int, int] = {}
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            left[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            assert left.pop(entry["addr"]) == entry["size"]
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    in_use = [block for block in blocks if block["state"] == "active_allocated"]
    assert {block["address"]: block["requested_size"] for block in in_use} == left
    assert len(left) == 40
    assert all(block["frames"][0] == {"filename": "model.py", "line": 12, "name": "forward"} for block in in_use)


def test_every_entry_can_be_told_apart_by_category_and_stack(tmp_path: Path) -> None:
    events, frames, categories = training(3)
    write_snapshot(tmp_path / "snapshot.pickle", events, frames=frames, categories=categories)
    (trace,) = read(tmp_path / "snapshot.pickle")["device_traces"]
    found = [entry.get("category") for entry in trace if entry["action"] == "alloc"]
    assert found == [category or None for category, (_, size, _) in zip(categories, events, strict=True) if size > 0]
    assert trace[-1]["category"] == "unknown", "the viewer adds it itself, by a misspelt name, and fails"
    freed = [entry["frames"][0]["filename"] for entry in trace if entry["action"] == "free_requested"]
    assert freed == ["model.py"] * 3 + ["model.py", "loss.py"] * 3


def test_the_viewer_can_read_it(tmp_path: Path) -> None:
    events, frames, categories = training()
    settings = AllocatorSettings(expandable_segments=True, garbage_collection_threshold=0.5)
    write_snapshot(tmp_path / "snapshot.pickle", events, settings, frames=frames, categories=categories)
    used = {operation.name for operation, _, _ in pickletools.genops((tmp_path / "snapshot.pickle").read_bytes())}
    assert used <= VIEWER_KNOWS


def test_stacks_are_written_once(tmp_path: Path) -> None:
    events, frames, _ = training()
    write_snapshot(tmp_path / "with.pickle", events, frames=[(*frame[:1], Frame("é" * 5000, 1, "f")) for frame in frames])
    write_snapshot(tmp_path / "without.pickle", events)
    difference = (tmp_path / "with.pickle").stat().st_size - (tmp_path / "without.pickle").stat().st_size
    assert 10_000 < difference < 12_000
    (trace,) = read(tmp_path / "with.pickle")["device_traces"]
    assert len({id(entry) for entry in trace}) == len(trace), "the viewer writes into each entry"


def test_it_ends_where_memory_ran_out(tmp_path: Path) -> None:
    events: list[Event] = [(1, 30 * MIB, 0), (2, 30 * MIB, 0), (1, RELEASE, 0)]
    settings = AllocatorSettings(capacity_bytes=50 * MIB)
    write_snapshot(tmp_path / "snapshot.pickle", events, settings, frames=[MODEL] * 3)
    (trace,) = read(tmp_path / "snapshot.pickle")["device_traces"]
    assert [entry["action"] for entry in trace] == ["segment_alloc", "alloc", "oom", "snapshot"]
    assert (trace[2]["size"], trace[2]["device_free"], trace[2]["frames"][0]["line"]) == (30 * MIB, 20 * MIB, 12)


@pytest.mark.real_classes
@pytest.mark.parametrize("settings", SETTINGS)
def test_torch_s_own_tools_take_it(tmp_path: Path, settings: AllocatorSettings) -> None:
    from torch.cuda import _memory_viz  # noqa: PLC0415

    events, frames, categories = training()
    write_snapshot(tmp_path / "snapshot.pickle", events, settings, frames=frames, categories=categories)
    done, snapshot = replay(events, settings), read(tmp_path / "snapshot.pickle")
    summary = _memory_viz.segsum(snapshot)
    assert f"segments: {done.segments}\n" in summary
    assert f"total_reserved: {_memory_viz.Bytes(done.reserved_bytes)}\n" in summary
    text = _memory_viz.trace(snapshot)
    assert text.count("cudaMalloc(") == sum(entry["action"] == "segment_alloc" for entry in snapshot["device_traces"][0])
    assert text.count("# free completed") == sum(size == RELEASE for _, size, _ in events)
    flames = _memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    in_use = [line for line in flames.splitlines() if "active_allocated;train.py:3:<module>;model.py:12:forward" in line]
    assert sum(int(line.rsplit(" ", 1)[1]) for line in in_use) == sum(3 * MIB + 512 * index for index in range(40))
    assert _memory_viz.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=lambda lines: lines) == ""
    assert "Active Memory Timeline" in _memory_viz.trace_plot(snapshot)
    assert "Allocator State History" in _memory_viz.segment_plot(snapshot)
    assert "Active Cached Memory Timeline" in _memory_viz.trace_plot(snapshot, plot_segments=True)
