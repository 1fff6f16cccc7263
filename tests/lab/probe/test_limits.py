"""What is known where memory ran out, of a GPU that is played: the allocator's own word comes before that of the error."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fullstep.lab.probe.worker.limits import what_ran_out
from fullstep.probing.faults import RanOut, ran_out_in

pytestmark = pytest.mark.real_classes
_GIB = 2**30
_SAID = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.17 GiB is free. "
    "Of the allocated memory 66.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
)


@pytest.fixture(autouse=True)
def _unwound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception has given most of it back when somebody asks."""
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 3 * _GIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 5 * _GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * _GIB))


@pytest.mark.parametrize(
    ("said", "observed", "there"),
    [
        (
            ran_out_in(_SAID),
            [RanOut(1, 2, 3, 4), RanOut(2 * _GIB, 66 * _GIB + 512, 67 * _GIB + 512, 4)],
            (66 * _GIB + 512, 67 * _GIB + 512),
        ),
        (ran_out_in(_SAID), [], (66 * _GIB, 67 * _GIB)),
        (ran_out_in(_SAID), [RanOut(64, 1, 1, 1)], (66 * _GIB, 67 * _GIB)),  # of another request, which somebody did without
        (ran_out_in("CUDA error: out of memory"), [], (3 * _GIB, 5 * _GIB)),
    ],
    ids=["as the allocator saw it", "as the error says", "of another request", "as it is now"],
)
def test_what_was_there(said: RanOut, observed: list[RanOut], there: tuple[int, int]) -> None:
    found = what_ran_out(said, torch.device("cuda", 0), None, (2, "backward"), observed)
    assert (found["allocated_bytes"], found["reserved_bytes"]) == there
    assert (found["step"], found["phase"], found["limit_bytes"]) == (2, "backward", 80 * _GIB)
