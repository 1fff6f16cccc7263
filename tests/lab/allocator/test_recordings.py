"""The model against recordings of the real allocator: the same calls to CUDA, the same peak, the same addresses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fullstep.errors import UnsupportedError
from fullstep.lab.allocator import Comparison, replay_recording

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
MIB = 1 << 20


def recording(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda path: path.name.split(".")[0])
def compared(request: pytest.FixtureRequest) -> Comparison:
    return replay_recording(recording(request.param))


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) >= 17
    assert sum(bool(replay_recording(recording(path)).recorded_segments) for path in RECORDINGS) >= 12


def test_segments_are_asked_for_in_the_same_order(compared: Comparison) -> None:
    assert compared.replayed_segments == compared.recorded_segments


def test_peak_reserved_is_the_same(compared: Comparison) -> None:
    assert compared.replayed_peak_reserved_bytes == compared.recorded_peak_reserved_bytes
    assert compared.replayed_reserved_bytes == compared.recorded_reserved_bytes


def test_addresses_are_the_same(compared: Comparison) -> None:
    assert compared.same_addresses == compared.allocations > 0


def test_no_recorded_run_gave_back_less_than_the_whole_cache(compared: Comparison) -> None:
    """All of it, the large pool before the small one, each by size and address."""
    assert compared.other_releases == 0


def test_some_recorded_runs_emptied_the_cache() -> None:
    assert sum(replay_recording(recording(path)).full_releases for path in RECORDINGS) >= 5


def test_expandable_segments_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="recording of-mine: expandable segments"):
        replay_recording({"id": "of-mine", "settings": {"expandable_segments": True}, "final_segments": [], "events": []})


def test_leftover_of_a_block_shows_by_the_first_allocation_behind_it() -> None:
    """10 MiB in a block of 10.5 MiB, as the remainder was too little to be split off; then 3 MiB were put behind it."""
    behind = 10 * MIB + MIB // 2
    blocks = [{"size": behind, "requested_size": 10 * MIB, "state": "active_allocated"}]
    blocks += [{"size": 3 * MIB, "requested_size": 3 * MIB, "state": "active_allocated"}]
    blocks += [{"size": 20 * MIB - behind - 3 * MIB, "requested_size": 0, "state": "inactive"}]
    segment = {"address": 1 << 40, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "is_expandable": False, "blocks": blocks}
    base = segment["address"]
    assert isinstance(base, int)
    events = [
        ["alloc", base + behind, 3 * MIB, 0],
        ["free_requested", base, 10 * MIB, 0],
        ["free_completed", base, 10 * MIB, 0],
        ["alloc", base, 10 * MIB, 0],
    ]
    compared = replay_recording({"id": "by hand", "settings": {}, "final_segments": [segment], "events": events})
    assert (compared.allocations, compared.same_addresses, compared.replayed_segments) == (2, 2, ())


def test_garbage_collection_in_a_recording_is_followed() -> None:
    """Two cached segments, one of which goes: the other one serves the next request."""
    base = 1 << 40
    inactive = [{"size": 30 * MIB, "requested_size": 0, "state": "inactive"}]
    active = [{"size": 30 * MIB, "requested_size": 30 * MIB, "state": "active_allocated"}]
    common = {"total_size": 30 * MIB, "stream": 3, "segment_type": "large", "is_expandable": False}
    final = [{"address": base, "blocks": active, **common}, {"address": base + 90 * MIB, "blocks": inactive, **common}]
    events = [["segment_free", base + 30 * MIB, 30 * MIB, 3], ["alloc", base, 30 * MIB, 3]]
    compared = replay_recording({"id": "by hand", "settings": {"max_split_size": -1}, "final_segments": final, "events": events})
    assert (compared.full_releases, compared.other_releases) == (0, 1)
    assert compared.same_addresses == 1
    assert compared.recorded_peak_reserved_bytes == compared.replayed_peak_reserved_bytes == 90 * MIB
    assert compared.recorded_reserved_bytes == compared.replayed_reserved_bytes == 60 * MIB


def test_a_recording_from_an_empty_card() -> None:
    base = 1 << 40
    blocks = [
        {"size": 512, "requested_size": 8, "state": "active_allocated"},
        {"size": 2 * MIB - 512, "requested_size": 0, "state": "inactive"},
    ]
    final = [{"address": base, "total_size": 2 * MIB, "stream": 0, "segment_type": "small", "is_expandable": False, "blocks": blocks}]
    events = [["segment_alloc", base, 2 * MIB, 0], ["alloc", base, 8, 0], ["oom", 100, 1 << 40, 0], ["snapshot", 0, 512, 0]]
    compared = replay_recording({"id": "by hand", "settings": {}, "final_segments": final, "events": events})
    assert compared.replayed_segments == compared.recorded_segments == (2 * MIB,)
    assert compared.replayed_peak_reserved_bytes == compared.recorded_peak_reserved_bytes == 2 * MIB
    assert compared.same_addresses == 1
