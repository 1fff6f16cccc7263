"""What is refused before a process starts, and which sizes are measured."""

from __future__ import annotations

import pytest

from fullstep.errors import InputError
from fullstep.lab.link.front import limits
from fullstep.lab.link.front.limits import notes_of, sizes_of


def test_sizes_grow_by_four() -> None:
    assert sizes_of("cpu", 2, None, None) == (4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
    assert sizes_of("cuda", 8, None, None)[-1] == 2**30
    assert sizes_of("cpu", 2, None, 1000) == (1000,)


def test_every_rank_has_whole_words() -> None:
    assert all(size % (4 * 7) == 0 for size in sizes_of("cpu", 7, None, None))


@pytest.mark.parametrize(
    ("sizes", "largest", "message"),
    [
        ([4096, 15], None, "--sizes: found 15 bytes; allowed: at least 16, one float32 for each of 4 ranks"),
        (None, 8, "--max-bytes: found 8 bytes"),
        ([2**33], None, "--sizes: 2 buffers of 8 GiB on each of 4 ranks; allowed: what fits into 32 GiB of host memory"),
    ],
)
def test_sizes_that_make_no_sense(sizes: list[int] | None, largest: int | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "host_memory_bytes", lambda: 2**35)
    with pytest.raises(InputError, match=message):
        sizes_of("cpu", 4, sizes, largest)


def test_a_node_holds_the_buffers_of_its_own_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 ranks with 2 buffers of 8 GiB are 32 GiB, on each of 4 nodes; words are counted for the ranks of all."""
    monkeypatch.setattr(limits, "host_memory_bytes", lambda: 2**35)
    assert sizes_of("cpu", 2, [2**33], None, 4) == (2**33,)
    with pytest.raises(InputError, match="on each of 3 ranks of a node"):
        sizes_of("cpu", 3, [2**33], None, 4)
    with pytest.raises(InputError, match="for each of 8 ranks"):
        sizes_of("cpu", 2, [31], None, 4)


def test_a_job_of_several_nodes_is_told_how_many_were_measured() -> None:
    assert any("this job has 4 nodes" in note for note in notes_of("cuda", 8, 1, {"SLURM_JOB_NUM_NODES": "4"}))
    assert not any("this job" in note for note in notes_of("cuda", 8, 1, {"SLURM_JOB_NUM_NODES": "1"}))
    several = notes_of("cuda", 8, 4, {"SLURM_JOB_NUM_NODES": "4"})
    assert several[0].startswith("4 nodes: ") and not any("one machine" in note for note in several)


def test_cores_that_are_shared_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(limits.os, "getloadavg", lambda: (1.5, 0.0, 0.0), raising=False)
    assert {
        "4 ranks on 2 cores take turns: times are those of waiting as well",
        "in the minute before, other programs kept 1.5 of 2 cores busy on average or waited for them",
    } < set(notes_of("cpu", 4, 1, {}))
    monkeypatch.setattr(limits.os, "getloadavg", lambda: (0.1, 0.0, 0.0), raising=False)
    assert not any("cores take turns" in note or "busy" in note for note in notes_of("cpu", 2, 1, {}))
