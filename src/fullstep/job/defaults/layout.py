"""Defaults of the section layout: the strategy, who implements it, and among how many ranks state is divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.job.defaults.filler import RANK_KEYS, Filler
from fullstep.job.habits import Habits
from fullstep.job.job import FSDP_STRATEGIES, ZERO_STRATEGIES, Layout

SHARDED = FSDP_STRATEGIES | ZERO_STRATEGIES
OFFLOADS_ONE_GPU = ("torch", "torchtune")
"""frameworks in which torchao's CPUOffloadOptimizer is at hand"""
IMPLEMENTATIONS: dict[str, tuple[str, ...]] = {
    "single": ("torch", "deepspeed", "megatron"),
    "ddp": ("torch", "deepspeed", "megatron"),
    "zero1": ("deepspeed", "megatron", "torch"),
    "zero2": ("deepspeed", "megatron"),
    "zero3": ("deepspeed", "megatron"),
    "fsdp": ("fsdp2", "fsdp1"),
    "fsdp_grad_op": ("fsdp2", "fsdp1"),
    "hsdp": ("fsdp2", "fsdp1"),
    "layer_split": ("torch",),
}
"""strategy -> who implements it, the default first"""


def sharded_by(strategy: str) -> str:
    """Which family divides state: "fsdp", "zero", or "" for none."""
    if strategy in FSDP_STRATEGIES:
        return "fsdp"
    return "zero" if strategy in ZERO_STRATEGIES else ""


def settle_strategy(filler: Filler, values: Mapping[str, Any], gpus: int, nodes: int) -> None:
    """Settles the strategy and who implements it, which other defaults hang on."""
    strategy = values.get("strategy")
    if strategy is None:
        many = gpus * nodes > 1
        why = "more than one GPU: state is sharded over them" if many else "one GPU"
        strategy = filler.take(values, "strategy", "layout.strategy", "fsdp" if many else "single", why)
    allowed = IMPLEMENTATIONS[strategy]
    implementation = values.get("implementation")
    if implementation is None:
        usual = "megatron" if filler.framework == "megatron" and "megatron" in allowed else allowed[0]
        implementation = filler.take(values, "implementation", "layout.implementation", usual, f"usual for {strategy}")
    elif implementation not in allowed:
        filler.fault("layout.implementation", f'"{implementation}" with layout.strategy "{strategy}"', ", ".join(allowed), beside=RANK_KEYS)
    filler.strategy, filler.implementation = strategy, implementation


def data_parallel_ranks(filler: Filler, values: Mapping[str, Any], gpus: int, nodes: int) -> int:
    """gpus * nodes / (tensor * pipeline * context); 1 under layer_split, where one process drives all GPUs."""
    strategy, ranks = filler.strategy, gpus * nodes
    degree = int(values.get("tensor", 1) * values.get("pipeline", 1) * values.get("context", 1))
    if ranks % degree:
        stated = [name for name in ("tensor", "pipeline", "context") if values.get(name, 1) > 1]
        text = " * ".join(f"{name} {values[name]}" for name in stated)
        allowed = "degrees whose product divides machine.gpus * machine.nodes"
        filler.fault(f"layout.{stated[0]}", f"{text} does not divide {ranks} GPUs", allowed, beside=RANK_KEYS)
        return 1
    if strategy == "single" and ranks > degree:
        remedy = 'Use "ddp" for a replica per GPU, "fsdp" to divide the state, or machine.gpus = 1 and machine.nodes = 1.'
        allowed = "ddp, zero1, zero2, zero3, fsdp, fsdp_grad_op, hsdp, layer_split"
        filler.fault("layout.strategy", f'"single" on {ranks} GPUs', allowed, remedy, RANK_KEYS)
    if strategy == "layer_split":
        if nodes > 1:
            remedy = "One process drives all its GPUs: set machine.nodes = 1."
            filler.fault("layout.strategy", f'"layer_split" on {nodes} nodes', "one node", remedy)
        return 1
    return ranks // degree


def shards_of(filler: Filler, values: Mapping[str, Any], data_parallel: int, gpus: int) -> int:
    """Data-parallel ranks among which state is divided."""
    strategy = filler.strategy
    if strategy not in SHARDED:
        if values.get("shards", 1) > 1:
            remedy = "Take the key out, or use a strategy that divides state: zero1, zero2, zero3, fsdp, hsdp."
            found = f'{values["shards"]} with layout.strategy "{strategy}", which divides nothing'
            filler.fault("layout.shards", found, "1", remedy, RANK_KEYS)
        return 1
    if "shards" not in values:
        in_a_node = max(1, gpus // (values.get("tensor", 1) * values.get("context", 1)))
        if strategy == "hsdp" and data_parallel % in_a_node == 0:
            why = "the data-parallel ranks of one node; nodes hold replicas"
            return int(filler.take(values, "shards", "layout.shards", in_a_node, why))
        return int(filler.take(values, "shards", "layout.shards", data_parallel, "all data-parallel ranks"))
    shards = int(values["shards"])
    if data_parallel % shards:
        divisors = [number for number in range(1, min(data_parallel, 4096) + 1) if data_parallel % number == 0]
        near = sorted(sorted(divisors, key=lambda number: abs(number - shards))[:3])
        allowed = f"a divisor of the {data_parallel} data-parallel ranks"
        found = f"{shards} on {data_parallel} data-parallel ranks"
        filler.fault("layout.shards", found, allowed, f"Nearest: {', '.join(map(str, near))}.", RANK_KEYS)
        return 1
    return shards


def layout_of(filler: Filler, values: Mapping[str, Any], *, data_parallel: int, shards: int, habits: Habits) -> Layout:
    """The whole section, given what was settled before."""
    take, strategy, implementation = filler.take, filler.strategy, filler.implementation
    family = sharded_by(strategy)
    if strategy == "fsdp_grad_op":
        reshard = take(values, "reshard_after_forward", "layout.reshard_after_forward", False, "what fsdp_grad_op means")
    elif family == "fsdp" or strategy == "zero3":
        reshard = take(values, "reshard_after_forward", "layout.reshard_after_forward", True, "default of FSDP and ZeRO-3")
    else:
        reshard = values.get("reshard_after_forward", True)
    sync_default = family == "fsdp" or strategy in ("zero2", "zero3")
    why = "every micro-batch reduces under this strategy" if sync_default else "no_sync during accumulation"
    sync = take(values, "sync_every_micro_batch", "layout.sync_every_micro_batch", sync_default, why)
    if "loading" in values:
        loading = values["loading"]
    else:
        loading = take(values, "loading", "layout.loading", habits.loading, habits.reasons["loading"])
    offload_optimizer = take(values, "offload_optimizer", "layout.offload_optimizer", False, "default")
    offload_parameters = take(values, "offload_parameters", "layout.offload_parameters", False, "default")
    if offload_parameters and not (family == "fsdp" or strategy == "zero3"):
        filler.caution("F005", f"layout.offload_parameters does nothing under {strategy}; zero3 and fsdp can")
        offload_parameters = False
    if offload_optimizer and family == "fsdp" and not offload_parameters:
        text = "FSDP moves optimizer states to host memory only together with parameters: set layout.offload_parameters as well"
        filler.caution("F007", text)
        offload_optimizer = False
    if offload_optimizer and not family and not (strategy == "single" and filler.framework in OFFLOADS_ONE_GPU):
        filler.caution("F005", f"layout.offload_optimizer does nothing under {strategy}; zero1 to zero3 can, also on one GPU")
        offload_optimizer = False
    return Layout(
        strategy=strategy,  # type: ignore[arg-type]
        implementation=implementation,  # type: ignore[arg-type]
        shards=shards,
        data_parallel=data_parallel,
        tensor=values.get("tensor", 1),
        pipeline=values.get("pipeline", 1),
        context=values.get("context", 1),
        expert=values.get("expert", 1),
        reshard_after_forward=reshard,
        sync_every_micro_batch=sync,
        bucket_bytes=values.get("bucket_bytes"),
        prefetch_units=values.get("prefetch_units"),
        max_live_parameters=values.get("max_live_parameters"),
        offload_optimizer=offload_optimizer,
        offload_parameters=offload_parameters,
        loading=loading,
    )
