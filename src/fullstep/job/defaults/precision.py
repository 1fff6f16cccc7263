"""Defaults of the sections precision and optimizer: dtypes of everything kept, and the optimizer's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.job.defaults.filler import Filler
from fullstep.job.defaults.layout import SHARDED
from fullstep.job.habits import Habits
from fullstep.job.job import ZERO_STRATEGIES, Optimizer, Precision

CASTS_ADAPTERS = frozenset(("transformers", "axolotl", "llamafactory"))
"""frameworks on the Trainer, which runs adapters under autocast"""
MULTI_TENSOR = frozenset(("adamw", "adam", "sgd", "sgd_momentum"))
"""optimizers with foreach and fused kernels in torch.optim"""
LOW_BIT = frozenset(("adamw_8bit", "lion_8bit", "paged_adamw_8bit", "adamw_4bit"))


def precision_of(filler: Filler, values: Mapping[str, Any], habits: Habits) -> Precision:
    """The section precision."""
    take, full, strategy = filler.take, filler.full, filler.strategy
    weights = take(values, "weights", "precision.weights", "bfloat16", "what checkpoints are published in")
    compute = take(values, "compute", "precision.compute", "bfloat16", "usual since cards train it in hardware")
    adapters: Any = "float32"
    if not full:
        usual, why = "float32", "peft keeps adapters in float32 (autocast_adapter_dtype)"
        if habits.one_dtype:
            usual, why = weights, habits.reasons["one_dtype"]
        adapters = take(values, "adapters", "precision.adapters", usual, why)
    trained = weights if full else adapters
    low = trained != "float32"
    if "master_weights" in values:
        master = values["master_weights"]
        if master and not low:
            key = "precision.weights" if full else "precision.adapters"
            found = f"true, but what trains is float32 already ({key})"
            beside = ("method.kind", "precision.weights", "precision.adapters")
            filler.fault("precision.master_weights", found, "false", "Or train bfloat16 or float16 weights.", beside)
    else:
        keeps = strategy in ZERO_STRATEGIES or "megatron" in (filler.implementation, filler.framework)
        why = "DeepSpeed and Megatron keep them beside bfloat16 and float16 weights" if keeps and low else "no separate copy in this set-up"
        master = take(values, "master_weights", "precision.master_weights", keeps and low, why)
    gathered = "bfloat16" if compute == "fp8" else compute
    gradients = (
        take(values, "gradients", "precision.gradients", gathered, "as compute, beside master weights")
        if master
        else take(values, "gradients", "precision.gradients", trained, "as what is trained")
    )
    if "reduce" in values:
        reduce = values["reduce"]
    elif habits.one_dtype:
        reduce = take(values, "reduce", "precision.reduce", gradients, habits.reasons["one_dtype"])
    elif strategy in SHARDED:
        reduce = take(values, "reduce", "precision.reduce", "float32", "state is sharded")
    else:
        reduce = take(values, "reduce", "precision.reduce", gradients, "as gradients")
    autocast = values.get("autocast")
    if autocast is None:
        autocast, why = _autocast(filler, weights, gathered)
        take(values, "autocast", "precision.autocast", autocast, why)
    return Precision(
        weights=weights, compute=compute, autocast=autocast, gradients=gradients, adapters=adapters, reduce=reduce, master_weights=master
    )


def _autocast(filler: Filler, weights: str, gathered: str) -> tuple[bool, str]:
    if filler.strategy in ("zero1", "zero2"):
        return False, "weights are in the compute dtype already" if weights == gathered else "engines of ZeRO do not run it unless told"
    if filler.strategy in SHARDED:
        return False, "sharded weights are gathered in the compute dtype instead"
    if weights != gathered:
        return True, "weights and compute differ"
    if not filler.full and filler.framework in CASTS_ADAPTERS:
        return True, f"{filler.framework} runs adapters under autocast"
    return False, "weights are in the compute dtype already"


def optimizer_of(filler: Filler, values: Mapping[str, Any], precision: Precision) -> Optimizer:
    """The section optimizer."""
    take = filler.take
    name = take(values, "name", "optimizer.name", "adamw", "the usual choice")
    kernels: Any = values.get("implementation")
    if kernels is None:
        if filler.strategy in ZERO_STRATEGIES and filler.implementation == "deepspeed":
            kernels, why = "deepspeed", "DeepSpeed steps over its own flat partitions"
        elif name in MULTI_TENSOR:
            kernels, why = "foreach", "default of torch.optim; the Trainer of transformers 5 takes fused: then state it"
        else:
            kernels, why = "single", f"{name} steps one parameter at a time"
        take(values, "implementation", "optimizer.implementation", kernels, why)
    elif kernels == "fused" and name not in MULTI_TENSOR:
        remedy = "Fused kernels exist for adamw, adam, sgd, sgd_momentum."
        filler.fault("optimizer.implementation", f'"fused" with optimizer.name "{name}"', "foreach, single", remedy)
    if name in LOW_BIT:
        packed = "two 4-bit states share one byte" if name == "adamw_4bit" else "8-bit states"
        state = take(values, "state_dtype", "optimizer.state_dtype", "int8", packed)
    elif precision.master_weights:
        state = take(values, "state_dtype", "optimizer.state_dtype", "float32", "as the master weights")
    else:
        trained = precision.weights if filler.full else precision.adapters
        state = take(values, "state_dtype", "optimizer.state_dtype", trained, "as what is trained")
    return Optimizer(
        name=name,
        implementation=kernels,
        state_dtype=state,
        in_backward=take(values, "in_backward", "optimizer.in_backward", False, "gradients are kept until the step"),
    )
