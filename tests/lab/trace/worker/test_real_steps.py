"""The trace against real steps on the processor: every phase's peak, as the allocator's own events tell it.

Both sides take the processor's own kernels, so that it is the recording that is compared: what lives when. What CUDA does otherwise is
checked by source in ``test_compat.py`` and ``test_workspaces.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fullstep.lab.trace.front.process import ENVIRONMENT

sys.path.insert(0, str(Path(__file__).parent))
from real_cases import DATA_DEPENDENT, SINGLE, SPREAD

pytestmark = pytest.mark.real_classes
Peaks = dict[str, int]
Sides = Callable[[dict[str, Any]], tuple[Peaks, Peaks]]
_AROUND_THE_STEPS = {"0 0 setup", "3 0 done"}
"""the making of the model and its end are not traced"""


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """From a worksheet to the peaks of its real step and of its trace; both run at the same time, each in a process of its own."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_started(module)) for module in ("real_step", "traced_step")]

        def run(worksheet: dict[str, Any]) -> tuple[Peaks, Peaks]:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(json.dumps(worksheet) + "\n")
                process.stdin.flush()
            real, traced = (json.loads(process.stdout.readline()) for process in processes if process.stdout is not None)
            assert "crash" not in real, real["crash"]
            assert "crash" not in traced, traced["crash"]
            return real, traced

        yield run
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


def _started(module: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm.py")), module],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip


@pytest.mark.parametrize("name", [*SINGLE, *SPREAD])
def test_every_phase_peaks_as_in_reality(sides: Sides, name: str) -> None:
    real, traced = sides((SINGLE | SPREAD)[name])
    phases = real.keys() - _AROUND_THE_STEPS
    assert phases <= traced.keys()
    allowed = 0.01 if name in DATA_DEPENDENT else 0.001
    wrong = {
        phase: f"{traced[phase]:,} B traced, {real[phase]:,} B real, {traced[phase] / real[phase] - 1:+.4%}"
        for phase in sorted(phases)
        if abs(traced[phase] - real[phase]) > allowed * real[phase]
    }
    assert wrong == {}
