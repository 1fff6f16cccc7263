"""What of a worksheet cannot be probed, and where a probe runs something else in its place. Said before torch is loaded."""

from __future__ import annotations

from fullstep.errors import Fault
from fullstep.job import Settings
from fullstep.lab.buildable import (
    FOUR_BIT,
    MORE_OPTIMIZERS,
    OPTIMIZERS,
    OVER_QUANTIZED,
    QUANTIZATIONS,
    compiles_blocks,
    layout_faults,
    library_faults,
    optimizer_faults,
)

_ELSEWHERE = "`fullstep trace` and `fullstep estimate` cover it; `fullstep probe -- CMD` measures your own program."


def faults_of(settings: Settings, *, elsewhere: bool = False) -> list[Fault]:
    """Everything in the worksheet that a probe does not cover; empty: it can be tried.

    Args:
        settings: of the worksheet
        elsewhere: it is to run on another machine: which libraries are here makes no difference
    """
    others = [fault for part in (_of_method, _of_optimizer, _of_step) for fault in part(settings)]
    return layout_faults(settings, _fault) + (others or ([] if elsewhere else library_faults(settings)))


def notes_of(settings: Settings, device: str) -> list[str]:
    """Where the probed program is not the worksheet's."""
    notes = []
    if settings.step.attention == "flash":
        notes.append("sdpa attention in place of flash")
    if settings.step.framework != "transformers":
        notes.append(f"a plain loop over transformers' class in place of {settings.step.framework}")
    if settings.step.compile:
        blocks = "each block is compiled by itself; head and loss are not"
        notes.append(blocks if compiles_blocks(settings) else "compiled as a whole: the loss counts as a part of forward")
    if device == "cpu":
        card = settings.machine.card
        notes.append(f"on processors in place of {card.key if card is not None else 'a GPU'}: times are those of this machine")
        if settings.step.compile:
            notes.append("compiled for processors: what the compiler keeps and fuses for a GPU may be something else")
        elif "bfloat16" in (settings.precision.compute, settings.precision.weights):
            notes.append("timed steps multiply in float32 where processors have no bfloat16; counted steps do not")
        if settings.method.is_quantized:
            notes.append("loading holds the base at full width, since it is packed on the processors that it was made on")
        if settings.method.quantization == "int8":
            notes.append("8-bit products on processors are other kernels than on GPUs, with other buffers")
        if settings.optimizer.name.endswith("_8bit"):
            notes.append("on processors a step of 8-bit states holds them at 32 bits for a moment, as kernels of GPUs do not")
        if settings.optimizer.name.startswith("paged_"):
            notes.append("nothing is paged on processors: all states count as allocated")
        notes.append("no dropout in attention: kernels of processors that have it would keep the whole matrix, as GPUs do not")
        if settings.layout.is_fsdp:
            notes.append("gloo reduces a copy of what it scatters, as NCCL does not: the peak of backward may be higher than on GPUs")
        notes += _of_kernels(settings)
        notes.append("allocated is what torch asked host memory for in the thread that trains; GPU libraries' workspaces are not in it")
    return notes


def _of_kernels(settings: Settings) -> list[str]:
    """Where processors' own hold something else than those of GPUs, whose memory a probe on processors does not tell then."""
    notes = []
    if settings.precision.autocast and settings.precision.compute != "float32":
        notes.append("autocast of processors leaves norms and powers in bfloat16, which that of GPUs makes in float32")
    if settings.precision.compute == "float32" and settings.step.attention != "eager":
        notes.append("attention of processors takes grouped keys in float32, for which GPUs keep whole matrices of scores")
    return notes


def _of_method(settings: Settings) -> list[Fault]:
    method, faults = settings.method, []
    if method.is_quantized and method.quantization not in QUANTIZATIONS:
        faults.append(_fault("method.quantization", f'"{method.quantization}"', f"none, {', '.join(QUANTIZATIONS)}"))
    elif method.is_quantized and method.kind not in OVER_QUANTIZED:
        found = f'"{method.quantization}" under "{method.kind}"'
        faults.append(_fault("method.quantization", found, f"none, or one of the kinds {', '.join(OVER_QUANTIZED)}"))
    elif method.quantization == "int8" and settings.layout.is_fsdp:
        allowed = f"none, {', '.join(FOUR_BIT)}; or layout.strategy = single or ddp"
        faults.append(_fault("method.quantization", f'"{method.quantization}" with {settings.layout.strategy}', allowed))
    if method.objective != "sft":
        faults.append(_fault("method.objective", f'"{method.objective}"', "sft"))
    if method.kind == "bottleneck":
        faults.append(_fault("method.kind", '"bottleneck"', "full, lora or another kind of peft"))
    return faults


def _of_optimizer(settings: Settings) -> list[Fault]:
    precision, faults = settings.precision, optimizer_faults(settings, _fault, (*OPTIMIZERS, *MORE_OPTIMIZERS))
    if precision.master_weights:
        faults.append(_fault("precision.master_weights", "true: torch's optimizers keep no copies", "false"))
    if precision.compute not in ("float32", "bfloat16"):
        faults.append(_fault("precision.compute", f'"{precision.compute}"', "bfloat16, float32"))
    return faults


def _of_step(settings: Settings) -> list[Fault]:
    step, faults = settings.step, []
    if step.loss != "standard":
        faults.append(_fault("step.loss", f'"{step.loss}"', "standard"))
    if step.activation_offload:
        faults.append(_fault("step.activation_offload", "true", "false"))
    return faults


def _fault(key: str, found: str, allowed: str) -> Fault:
    return Fault(key, f"{found}, which cannot be probed yet", allowed, _ELSEWHERE)
