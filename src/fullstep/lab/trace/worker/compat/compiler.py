"""The compiler's stand-in as a unit: made before torch is loaded, checked like the others."""

from __future__ import annotations

import sys

from fullstep.lab.trace.worker.compat.unit import Unit
from fullstep.lab.trace.worker.without_compiler import load_no_compiler


def _self_test() -> None:
    """Optimizers, recomputation and classes of transformers do without the compiler. In a process that has loaded it there is nothing to see."""
    import torch  # noqa: PLC0415
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415

    before = "torch._dynamo.utils" in sys.modules
    weight = torch.nn.Parameter(torch.ones(2))
    checkpoint(lambda x: x * 2, weight, use_reentrant=False).sum().backward()
    torch.optim.AdamW([weight]).step()
    assert before or "torch._dynamo.utils" not in sys.modules


COMPILER = Unit(
    name="compiler",
    why="it takes longer to load than a trace takes to run, and nothing of a trace is compiled",
    install=load_no_compiler,
    self_test=_self_test,
)
