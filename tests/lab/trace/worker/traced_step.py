"""The trace of a step as the processor itself would take it, for comparison with a real step on the processor.

Changes that impose CUDA's choices are left out, kernels have no workspaces, and sizes are not rounded.
"""

from __future__ import annotations

from typing import Any

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.trace.worker import layout, run
from fullstep.lab.trace.worker.compat import UNITS, install_all
from fullstep.lab.trace.worker.compat.masks import say_packed
from fullstep.lab.trace.worker.stream import RELEASE, Stream
from fullstep.lab.trace.worker.workspaces import Workspaces
from fullstep.models import model_config


class NoWorkspaces(Workspaces):
    """Kernels take no buffers of their own."""

    def __init__(self, *_: object) -> None:
        super().__init__(None)
        self.matrix_product_bytes = 0
        self._inside = {}


def record(worksheet: dict[str, Any]) -> Stream:
    """Every allocation and release of the step, all blocks traced."""
    settings = settings_of(worksheet_from_mapping(worksheet))
    config, _ = model_config(settings.worksheet.section("model"))
    install_all(unit for unit in UNITS if not unit.imposes_cuda)
    say_packed(settings.batch.packed)
    run.Workspaces = NoWorkspaces  # type: ignore[misc]
    return run.Run(config, settings, layout.make_mesh(settings), lambda _: None).whole()[0]


def peaks(worksheet: dict[str, Any]) -> dict[str, int]:
    """Most bytes allocated in each phase, by "step micro-batch phase"."""
    stream = record(worksheet)
    allocated, last, found = 0, -1, dict[str, int]()
    for which, size, segment in zip(stream.which, stream.sizes, stream.segment_of_event, strict=True):
        for number in range(last + 1, segment + 1):
            found[_name(stream, number)] = allocated
        last = segment
        allocated += -stream.tensors[which].size_bytes if size == RELEASE else size
        found[_name(stream, segment)] = max(found[_name(stream, segment)], allocated)
    for number in range(last + 1, len(stream.segments)):  # nothing came or went in them
        found[_name(stream, number)] = allocated
    return found


def _name(stream: Stream, segment: int) -> str:
    return " ".join(map(str, stream.segments[segment]))
