"""What of a worksheet cannot be probed, and where a probe runs something else in its place. Said before torch is loaded."""

from __future__ import annotations

from fullstep.errors import Fault
from fullstep.job import Settings
from fullstep.lab.buildable import layout_faults, optimizer_faults

_ELSEWHERE = "`fullstep trace` and `fullstep estimate` cover it; `fullstep probe -- CMD` measures your own program."


def faults_of(settings: Settings) -> list[Fault]:
    """Everything in the worksheet that a probe does not cover; empty: it can be tried."""
    others = [fault for part in (_of_method, _of_optimizer, _of_step) for fault in part(settings)]
    return layout_faults(settings, _fault) + others


def notes_of(settings: Settings, device: str) -> list[str]:
    """Where the probed program is not the worksheet's."""
    notes = []
    if settings.step.attention == "flash":
        notes.append("sdpa attention in place of flash")
    if settings.step.framework != "transformers":
        notes.append(f"a plain loop over transformers' class in place of {settings.step.framework}")
    if device == "cpu":
        card = settings.machine.card
        notes.append(f"on processors in place of {card.key if card is not None else 'a GPU'}: times are those of this machine")
        if settings.precision.compute == "bfloat16" or settings.precision.weights == "bfloat16":
            notes.append("timed steps multiply in float32 where processors have no bfloat16; counted steps do not")
        notes.append("no dropout in attention: kernels of processors that have it would keep the whole matrix, as GPUs do not")
        if settings.layout.is_fsdp:
            notes.append("gloo's reduce-scatter holds buffers of its own, as NCCL's does not: peaks of FSDP are higher than on GPUs")
        notes.append("allocated is what torch asked host memory for in the thread that trains; GPU libraries' workspaces are not in it")
    return notes


def _of_method(settings: Settings) -> list[Fault]:
    method, faults = settings.method, []
    if method.is_quantized or method.quantization != "none":
        faults.append(_fault("method.quantization", f'"{method.quantization}"', "none"))
    if method.objective != "sft":
        faults.append(_fault("method.objective", f'"{method.objective}"', "sft"))
    if method.kind == "bottleneck":
        faults.append(_fault("method.kind", '"bottleneck"', "full, lora or another kind of peft"))
    return faults


def _of_optimizer(settings: Settings) -> list[Fault]:
    precision, faults = settings.precision, optimizer_faults(settings, _fault)
    if precision.master_weights:
        faults.append(_fault("precision.master_weights", "true: torch's optimizers keep no copies", "false"))
    if precision.compute not in ("float32", "bfloat16"):
        faults.append(_fault("precision.compute", f'"{precision.compute}"', "bfloat16, float32"))
    return faults


def _of_step(settings: Settings) -> list[Fault]:
    step, faults = settings.step, []
    if step.loss != "standard":
        faults.append(_fault("step.loss", f'"{step.loss}"', "standard"))
    for name in ("compile", "activation_offload"):
        if getattr(step, name):
            faults.append(_fault(f"step.{name}", "true", "false"))
    return faults


def _fault(key: str, found: str, allowed: str) -> Fault:
    return Fault(key, f"{found}, which cannot be probed yet", allowed, _ELSEWHERE)
