"""What of a worksheet cannot be traced, said before torch is loaded."""

from __future__ import annotations

from fullstep.errors import Fault
from fullstep.job import Settings
from fullstep.job.job import Layout
from fullstep.lab.buildable import FOUR_BIT, MORE_OPTIMIZERS, OVER_QUANTIZED, STRATEGIES, state_dtype
from fullstep.lab.buildable import OPTIMIZERS as OF_TORCH

OPTIMIZERS = (*OF_TORCH, *MORE_OPTIMIZERS)
_OVER_FOUR_BIT = tuple(kind for kind in OVER_QUANTIZED if kind != "hira")
"""hira multiplies with weights that bitsandbytes itself unpacks. Source: peft 0.21, tuners/hira/bnb.py"""
_SIDES_UNKNOWN = ("galore", "apollo")
_KINDS = {
    "bottleneck": "a kind of the library adapters; peft has none of that name",
    "bone": "which peft took out in version 0.19 in favour of miss",
    "xlora": "which mixes adapters that were trained before and are read from their files",
    "adamss": "which sorts the values of weights into clusters; their number decides what is trained",
    "frod": "whose rotation is a sparse matrix, which fake tensors cannot be",
    "shira": "whose adapters are sparse matrices, which fake tensors cannot be",
    "cpt": "whose loss picks tokens by the values of a mask",
}
"""kinds that cannot be traced, and why"""
_IN_THE_CACHE = ("prefix_tuning", "cartridge")
"""kinds whose trained tokens are entries of the key-value cache, which recomputation switches off"""
_ESTIMATE = "`fullstep estimate` covers it."
_ESTIMATE_IN_PART = "`fullstep estimate` covers it as far as it can."


def faults_of(settings: Settings) -> list[Fault]:
    """Everything in the worksheet that a trace does not cover; empty: it can be tried."""
    parts = (_of_layout, _of_method, _of_optimizer, _of_offload, _of_precision, _of_step)
    return [fault for part in parts for fault in part(settings)]


def is_sharded(layout: Layout) -> bool:
    """FSDP divides the parameters; with tensors cut over all the GPUs, one replica is left and nothing to divide."""
    return layout.is_fsdp and (layout.tensor == 1 or layout.data_parallel > 1)


def _of_layout(settings: Settings) -> list[Fault]:
    layout = settings.layout
    faults = []
    if layout.strategy not in STRATEGIES:
        faults.append(_layout_fault("strategy", f'"{layout.strategy}"', ", ".join(STRATEGIES)))
    elif layout.is_fsdp and layout.implementation not in ("fsdp2", "fsdp1", "torch"):
        faults.append(_layout_fault("implementation", f'"{layout.implementation}"', "fsdp2, fsdp1"))
    if layout.implementation == "fsdp1":
        faults += _of_flat_shards(layout)
    faults += [
        _layout_fault(name, str(getattr(layout, name)), "1") for name in ("pipeline", "context", "expert") if getattr(layout, name) > 1
    ]  # fmt: skip
    if layout.tensor > 1 and not (layout.is_fsdp or layout.strategy == "single"):
        faults.append(_layout_fault("tensor", f"{layout.tensor} together with {layout.strategy}", "1, or with fsdp, hsdp or one replica"))
    if layout.tensor > 1 and settings.method.kind != "full":
        found = f'{layout.tensor} together with method.kind "{settings.method.kind}"'
        faults.append(_layout_fault("tensor", found, "1, or method.kind = full"))
    return faults


def _of_flat_shards(layout: Layout) -> list[Fault]:
    """What is traced of FSDP2 alone."""
    faults = []
    if type(layout.reshard_after_forward) is int:
        faults.append(_layout_fault("reshard_after_forward", f"{layout.reshard_after_forward} with fsdp1", "true, false"))
    if layout.offload_parameters:
        faults.append(_layout_fault("offload_parameters", "true with fsdp1", "false, or layout.implementation = fsdp2"))
    if layout.tensor > 1:
        faults.append(_layout_fault("tensor", f"{layout.tensor} with fsdp1", "1, or layout.implementation = fsdp2"))
    return faults


def _layout_fault(key: str, found: str, allowed: str) -> Fault:
    return Fault(f"layout.{key}", f"{found}, which cannot be traced", allowed, _ESTIMATE_IN_PART)


def _of_method(settings: Settings) -> list[Fault]:
    method, kind, recomputed = settings.method, settings.method.kind, settings.step.activation_checkpointing
    faults = []
    if method.quantization not in ("none", *FOUR_BIT):
        found = f'"{method.quantization}", which cannot be traced'
        faults.append(Fault("method.quantization", found, f"none, {', '.join(FOUR_BIT)}", _ESTIMATE))
    elif method.quantization in FOUR_BIT and kind not in _OVER_FOUR_BIT:
        found = f'"{method.quantization}" under "{kind}", which cannot be traced'
        faults.append(Fault("method.quantization", found, f"none, or one of the kinds {', '.join(_OVER_FOUR_BIT)}"))
    if method.objective != "sft":
        faults.append(Fault("method.objective", f'"{method.objective}", which cannot be traced', "sft", _ESTIMATE))
    if kind in _KINDS:
        faults.append(Fault("method.kind", f'"{kind}", {_KINDS[kind]}', "a kind of peft that starts from the model alone"))
    if kind in _IN_THE_CACHE and recomputed != "none":
        found = f'{recomputed} under "{kind}": recomputation switches off the cache that its tokens are in'
        faults.append(Fault("step.activation_checkpointing", found, "none"))
    return faults


def _of_optimizer(settings: Settings) -> list[Fault]:
    optimizer, layout = settings.optimizer, settings.layout
    faults = []
    if optimizer.name not in OPTIMIZERS:
        why = "a worksheet does not say which modules it projects" if optimizer.name in _SIDES_UNKNOWN else "which cannot be traced"
        faults.append(Fault("optimizer.name", f'"{optimizer.name}": {why}', ", ".join(OPTIMIZERS), _ESTIMATE))
    if optimizer.name == "adafactor" and (layout.is_fsdp or layout.tensor > 1):
        found = '"adafactor" on sharded tensors, which the one of transformers does not take'
        faults.append(Fault("optimizer.name", found, "adamw, sgd, lion, muon, adamw_8bit, adamw_4bit", _ESTIMATE))
    if optimizer.implementation == "deepspeed":
        faults.append(Fault("optimizer.implementation", '"deepspeed", whose own step cannot be traced', "foreach, fused, single"))
    if settings.precision.master_weights:
        found = "true: neither torch nor an optimizer here keeps float32 copies beside the parameters"
        remedy = "Or precision.weights = float32, which autocast or FSDP casts; `fullstep estimate` covers copies."
        faults.append(Fault("precision.master_weights", found, "false", remedy))
    stated, here = "state_dtype" in settings.worksheet.section("optimizer"), state_dtype(settings)
    if stated and optimizer.state_dtype != here:
        found = f'"{optimizer.state_dtype}": {optimizer.name} has states of {here} here'
        faults.append(Fault("optimizer.state_dtype", found, here, _ESTIMATE))
    if optimizer.in_backward and layout.strategy == "ddp":
        found = "true with ddp, which reduces gradients after they are accumulated"
        faults.append(Fault("optimizer.in_backward", found, "false, or one replica, or fsdp"))
    if optimizer.in_backward and layout.offload_parameters:
        found = "true with layout.offload_parameters, which cannot be traced"
        faults.append(Fault("optimizer.in_backward", found, "false", _ESTIMATE))
    return faults


def _of_offload(settings: Settings) -> list[Fault]:
    """What torch itself does not offload."""
    layout = settings.layout
    faults = []
    if layout.offload_parameters and not is_sharded(layout):
        found = f"true with {layout.strategy} on {layout.data_parallel} data-parallel ranks: torch offloads shards of FSDP2 alone"
        faults.append(Fault("layout.offload_parameters", found, "false, or layout.strategy = fsdp", _ESTIMATE))
    if layout.offload_optimizer and not (layout.offload_parameters and layout.is_fsdp):
        found = "true by itself: FSDP2 offloads parameters, gradients and states together; torchao's optimizer on the host is not traced"
        faults.append(Fault("layout.offload_optimizer", found, "false, or layout.offload_parameters = true with fsdp", _ESTIMATE))
    return faults


def _of_precision(settings: Settings) -> list[Fault]:
    precision, layout = settings.precision, settings.layout
    faults = []
    if precision.compute == "fp8":
        faults.append(Fault("precision.compute", '"fp8", whose kernels cannot be traced', "float32, bfloat16, float16", _ESTIMATE))
    elif precision.compute != precision.weights and not (precision.autocast or settings.method.is_quantized or is_sharded(layout)):
        found = f'"{precision.compute}" with {precision.weights} weights, and neither autocast nor FSDP casts them'
        faults.append(Fault("precision.compute", found, precision.weights, "Or precision.autocast = true."))
    trained = settings.trained_dtype
    if precision.gradients != trained and not precision.master_weights:
        found = f'"{precision.gradients}": torch keeps gradients in the dtype of what trains, here {trained}'
        faults.append(Fault("precision.gradients", found, trained, _ESTIMATE))
    if layout.strategy == "ddp" and precision.reduce != precision.gradients:
        found = f'"{precision.reduce}" with ddp, which reduces gradients as they are'
        faults.append(Fault("precision.reduce", found, precision.gradients, _ESTIMATE))
    return faults


def _of_step(settings: Settings) -> list[Fault]:
    step, layout = settings.step, settings.layout
    faults = []
    if step.compile:
        found = "true, which cannot be traced: the compiler decides what is kept"
        faults.append(Fault("step.compile", found, "false", _ESTIMATE))
    if step.loss in ("fused", "chunked") and layout.tensor > 1:
        found = f'"{step.loss}" with layout.tensor = {layout.tensor}: the output matrix is cut'
        faults.append(Fault("step.loss", found, "standard, inplace", _ESTIMATE))
    if step.loss == "standard" and step.loss_input_dtype != "float32":
        found = f'"{step.loss_input_dtype}" with the loss of transformers, which casts logits to float32'
        faults.append(Fault("step.loss_input_dtype", found, "float32", _ESTIMATE))
    return faults
