"""GPUs of this machine, asked of torch in a process of its own: a command's own process never loads it."""

from __future__ import annotations

import subprocess
import sys

from fullstep.errors import Fault, InputError

_COUNT = "import torch; print(torch.cuda.device_count())"
_COUNT_SECONDS = 120


def gpus_that_torch_sees(command: str) -> int:
    """How many.

    Args:
        command: for messages, as ``drill``

    Raises:
        InputError: there is none
    """
    try:
        done = subprocess.run([sys.executable, "-P", "-c", _COUNT], capture_output=True, text=True, check=True, timeout=_COUNT_SECONDS)
        count = int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        count = 0
    if not count:
        remedy = f"fullstep {command} --cpu 2 uses two ranks on processors."
        raise InputError(Fault(f"fullstep {command}", "torch sees no GPU here", "at least one GPU, or --cpu N", remedy))
    return count
