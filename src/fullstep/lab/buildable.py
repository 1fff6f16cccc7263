"""What of a worksheet the lab's own program (:mod:`fullstep.lab.program.real`) cannot be built from. Said before torch is loaded."""

from __future__ import annotations

from collections.abc import Callable

from fullstep.errors import Fault
from fullstep.job import Settings

STRATEGIES = ("single", "ddp", "fsdp", "fsdp_grad_op", "hsdp")
OPTIMIZERS = ("adamw", "adam", "sgd", "sgd_momentum")
MakeFault = Callable[[str, str, str], Fault]
"""of a key, what was found and what is allowed: each experiment says in its own words what else to do"""


def layout_faults(settings: Settings, fault: MakeFault) -> list[Fault]:
    """Layouts beyond torch's DDP and FSDP2."""
    layout, faults = settings.layout, []
    if layout.strategy not in STRATEGIES:
        faults.append(fault("layout.strategy", f'"{layout.strategy}"', ", ".join(STRATEGIES)))
    elif layout.is_fsdp and layout.implementation not in ("fsdp2", "torch"):
        faults.append(fault("layout.implementation", f'"{layout.implementation}"', "fsdp2"))
    for name in ("tensor", "pipeline", "context", "expert"):
        if getattr(layout, name) > 1:
            faults.append(fault(f"layout.{name}", str(getattr(layout, name)), "1"))
    for name in ("offload_optimizer", "offload_parameters"):
        if getattr(layout, name):
            faults.append(fault(f"layout.{name}", "true", "false"))
    return faults


def optimizer_faults(settings: Settings, fault: MakeFault) -> list[Fault]:
    """Optimizers that torch itself does not have."""
    optimizer, faults = settings.optimizer, []
    if optimizer.name not in OPTIMIZERS:
        faults.append(fault("optimizer.name", f'"{optimizer.name}"', ", ".join(OPTIMIZERS)))
    if optimizer.implementation == "deepspeed":
        faults.append(fault("optimizer.implementation", '"deepspeed"', "foreach, fused, single"))
    if optimizer.in_backward:
        faults.append(fault("optimizer.in_backward", "true", "false"))
    return faults
