"""What of a worksheet cannot be drilled, and where a drill runs something else in its place. Said before torch is loaded."""

from __future__ import annotations

from fullstep.errors import Fault
from fullstep.job import Settings
from fullstep.lab.buildable import layout_faults, optimizer_faults

WITHOUT_MOMENTS = ("sgd",)
_SIZED = "`fullstep estimate` sizes its checkpoints."


def faults_of(settings: Settings) -> list[Fault]:
    """Everything in the worksheet that a drill does not cover; empty: it can be tried."""
    others = [fault for part in (_of_method, _of_optimizer, _of_precision) for fault in part(settings)]
    return layout_faults(settings, _fault) + others


def notes_of(settings: Settings, device: str) -> list[str]:
    """Where the drilled program is not the worksheet's, though what it saves is."""
    step, notes = settings.step, []
    if step.loss != "standard":
        notes.append(f"the loss of transformers in place of the {step.loss} one, which holds no state")
    if step.attention == "flash":
        notes.append("sdpa attention in place of flash, which holds no state")
    if step.compile:
        notes.append("not compiled")
    if step.activation_offload:
        notes.append("activations are not offloaded")
    if not settings.batch.packed:
        notes.append("rows without padding")
    if device == "cpu" and settings.machine.card is not None:
        notes.append(f"on processors in place of {settings.machine.card.key}: times are those of this machine")
    return notes


def _of_method(settings: Settings) -> list[Fault]:
    method, faults = settings.method, []
    if method.is_quantized or method.quantization != "none":
        kind = "method.kind = lora" if method.kind == "qlora" else method.kind
        remedy = f"{kind} over a base of 16 bits saves the same adapters."
        found = f'"{method.quantization}": bitsandbytes and its like need a GPU of their own kind'
        faults.append(Fault("method.quantization", f"{found}, and cannot be drilled", "none", remedy))
    if method.objective != "sft":
        faults.append(_fault("method.objective", f'"{method.objective}"', "sft"))
    if method.kind == "bottleneck":
        faults.append(_fault("method.kind", '"bottleneck", which peft does not have', "full, lora or another kind of peft"))
    return faults


def _of_optimizer(settings: Settings) -> list[Fault]:
    precision, faults = settings.precision, optimizer_faults(settings, _fault)
    if precision.master_weights:
        remedy = "Or precision.weights = float32, which FSDP or autocast casts."
        faults.append(Fault("precision.master_weights", "true: torch's optimizers keep no copies", "false", remedy))
    return faults


def _of_precision(settings: Settings) -> list[Fault]:
    if settings.precision.compute in ("float32", "bfloat16"):
        return []
    why = "needs a scaler of the loss, whose state is not drilled" if settings.precision.compute == "float16" else "cannot be drilled"
    return [Fault("precision.compute", f'"{settings.precision.compute}", which {why}', "bfloat16, float32", _SIZED)]


def _fault(key: str, found: str, allowed: str) -> Fault:
    return Fault(key, f"{found}, which cannot be drilled", allowed, _SIZED)
