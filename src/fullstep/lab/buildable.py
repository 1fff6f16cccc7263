"""What of a worksheet the lab's own program (:mod:`fullstep.lab.program.real`) cannot be built from. Said before torch is loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib.util import find_spec

from fullstep.errors import Fault
from fullstep.job import Settings

STRATEGIES = ("single", "ddp", "fsdp", "fsdp_grad_op", "hsdp")
OPTIMIZERS = ("adamw", "adam", "sgd", "sgd_momentum")
"""of torch itself, all of whose states a checkpoint holds in one form"""
MORE_OPTIMIZERS = ("adafactor", "lion", "muon", "adamw_8bit", "adamw_4bit", "lion_8bit", "paged_adamw", "paged_adamw_8bit")
"""that take a library beside torch, or two optimizers at once"""
FOUR_BIT = ("nf4", "fp4")
QUANTIZATIONS = (*FOUR_BIT, "int8")
"""of bitsandbytes"""
OVER_QUANTIZED = (
    "lora", "qlora", "dora", "ia3", "adalora", "randlora", "road", "hira", "pvera", "vera", "miss", "oft", "boft",
)  # fmt: skip
"""kinds that peft lays over layers of bitsandbytes. Source: peft 0.21, tuners/*/bnb.py; of the last four, for which one form does for all
layers, utils/quantization_utils.py (resolve_quantization_backend)"""
_OF_32_BITS = frozenset(("adafactor", "paged_adamw"))
"""states are float32 whatever the parameters are. Source: transformers, optimization.py (Adafactor); bitsandbytes, Optimizer2State"""
_OF_FEWER_BITS = frozenset(("adamw_8bit", "lion_8bit", "paged_adamw_8bit", "adamw_4bit"))
_WHOLE_ALONE = _OF_FEWER_BITS | frozenset(("adafactor", "paged_adamw"))
"""optimizers that do not take sharded tensors: those of transformers and bitsandbytes, and under torch 2.13 those of torchao 0.18"""
_LIBRARIES = {
    "lion": "lion-pytorch", "adamw_4bit": "torchao", "adamw_8bit": "bitsandbytes", "lion_8bit": "bitsandbytes",
    "paged_adamw": "bitsandbytes", "paged_adamw_8bit": "bitsandbytes",
}  # fmt: skip
_BY_BLOCK = ("torchtune", "torchtitan")
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


def optimizer_faults(settings: Settings, fault: MakeFault, names: Collection[str] = OPTIMIZERS) -> list[Fault]:
    """Optimizers beyond ``names``, and states that none of them keeps."""
    optimizer, faults = settings.optimizer, []
    if optimizer.name not in names:
        faults.append(fault("optimizer.name", f'"{optimizer.name}"', ", ".join(names)))
    elif optimizer.name in _WHOLE_ALONE and settings.layout.is_fsdp:
        taken = [name for name in names if name not in _WHOLE_ALONE]
        faults.append(fault("optimizer.name", f'"{optimizer.name}" on sharded tensors', ", ".join(taken)))
    if optimizer.implementation == "deepspeed":
        faults.append(fault("optimizer.implementation", '"deepspeed"', "foreach, fused, single"))
    if optimizer.in_backward:
        faults.append(fault("optimizer.in_backward", "true", "false"))
    stated = "state_dtype" in settings.worksheet.section("optimizer")
    if optimizer.name in names and stated and optimizer.state_dtype != state_dtype(settings):
        faults.append(fault("optimizer.state_dtype", f'"{optimizer.state_dtype}"', state_dtype(settings)))
    return faults


def library_faults(settings: Settings) -> list[Fault]:
    """Libraries that this worksheet's program takes beside those of every experiment, and that are not installed."""
    return [
        Fault(key, f'"{value}" is of {library}, which is not installed', library, f"pip install {library}")
        for key, value, library in _libraries(settings)
        if find_spec(library.replace("-", "_")) is None
    ]


def optimizer_library(settings: Settings) -> str:
    """The library of an optimizer that torch and transformers do not have, as pip names it; empty: they have it."""
    return _LIBRARIES.get(settings.optimizer.name, "")


def compiles_blocks(settings: Settings) -> bool:
    """Under ``step.compile`` each block is compiled by itself, with the head and the loss left as they are; False: the whole model.

    FSDP2 gathers and frees between blocks, where no graph goes on; torchtune and torchtitan compile so in every layout.
    """
    return settings.layout.is_fsdp or settings.step.framework in _BY_BLOCK


def _libraries(settings: Settings) -> Iterator[tuple[str, str, str]]:
    if settings.method.quantization in QUANTIZATIONS:
        yield "method.quantization", settings.method.quantization, "bitsandbytes"
    if library := optimizer_library(settings):
        yield "optimizer.name", settings.optimizer.name, library


def state_dtype(settings: Settings) -> str:
    """That the optimizer's states have in the program that is built; "int8" stands for fewer bits of all kinds."""
    if settings.optimizer.name in _OF_FEWER_BITS:
        return "int8"
    return "float32" if settings.optimizer.name in _OF_32_BITS else settings.trained_dtype
