"""FSDP1: every block's parameters as one flat parameter, of which each rank holds a shard. torch's own FullyShardedDataParallel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.checkpoint import checkpoint

from fullstep.errors import Fault, UnsupportedError
from fullstep.job import Settings
from fullstep.job.habits import prefetches_units
from fullstep.lab.program.dtypes import DTYPES

Syncs = Callable[[bool], contextlib.AbstractContextManager[None]]
"""what stands around a micro-batch; argument: whether it is the step's last one"""


_TWO_DTYPES = "flatten tensors with uniform dtype"
"""what FSDP1 says. Source: torch.distributed.fsdp._flat_param, _validate_tensors_to_flatten"""


def shard_flat(model: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, settings: Settings) -> tuple[nn.Module, Syncs]:
    """The model wrapped as accelerate wraps it: its blocks by their class, then the rest; parameters keep their own names.

    Args:
        model: with its adapters
        blocks: units
        mesh: data-parallel ranks; two dimensions for hsdp
        settings: the worksheet

    Raises:
        UnsupportedError: a unit would hold weights of two dtypes

    Returns:
        the wrapped model, and what stands around a micro-batch: argument, whether it is the last one
    """
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy  # noqa: PLC0415

    layout, precision = settings.layout, settings.precision
    whole_in_between = layout.strategy == "fsdp_grad_op" or layout.reshard_after_forward is False
    if layout.strategy == "hsdp":
        strategy = ShardingStrategy._HYBRID_SHARD_ZERO2 if whole_in_between else ShardingStrategy.HYBRID_SHARD
    else:
        strategy = ShardingStrategy.SHARD_GRAD_OP if whole_in_between else ShardingStrategy.FULL_SHARD
    compute, reduce = DTYPES[precision.compute], DTYPES[precision.reduce]
    try:
        wrapped: Any = FullyShardedDataParallel(
            model,
            device_mesh=mesh,
            sharding_strategy=strategy,
            auto_wrap_policy=_units(model, blocks, settings),
            mixed_precision=MixedPrecision(param_dtype=compute, reduce_dtype=reduce, buffer_dtype=compute),
            backward_prefetch=BackwardPrefetch.BACKWARD_PRE if prefetches_units(settings) else None,
            use_orig_params=True,
            device_id=torch.device("cpu"),
            limit_all_gathers=True,
        )
    except ValueError as error:
        if _TWO_DTYPES not in str(error):
            raise
        found = f"{settings.method.upcast_unquantized} with fsdp1, whose flat parameters have one dtype: {error}"
        raise UnsupportedError(Fault("method.upcast_unquantized", found, "false, or layout.implementation = fsdp2")) from error

    def syncs(last: bool) -> contextlib.AbstractContextManager[None]:
        around: contextlib.AbstractContextManager[None] = wrapped.no_sync()
        return contextlib.nullcontext() if last or layout.sync_every_micro_batch else around

    return wrapped, syncs


def recompute_units(wrapped: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Recomputes the unit of each block, with all that FSDP1 does around it, as loops over decoder layers did.

    In backward the unit is entered again, and its hook on the recomputed input holds that input and its gradient until backward ends.
    Source: torch.distributed.fsdp._runtime_utils, _register_post_backward_reshard_only_hook.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel  # noqa: PLC0415

    inside = set(map(id, blocks))
    for unit in wrapped.modules():
        if isinstance(unit, FullyShardedDataParallel) and id(unit.module) in inside:
            unit.forward = partial(_recomputed, unit.forward)  # type: ignore[method-assign]


def _recomputed(forward: Callable[..., Any], *args: Any, **keys: Any) -> Any:
    return checkpoint(partial(forward, **keys), *args, use_reentrant=True, preserve_rng_state=False)


def _units(model: nn.Module, blocks: Sequence[nn.Module], settings: Settings) -> Any:
    """Blocks; of an adapter also each trained leaf, since a flat parameter has one dtype and is trained as a whole.

    Source: peft utils/other.py fsdp_auto_wrap_policy, which the Trainer puts in the place of accelerate's.
    """
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy, _or_policy, lambda_auto_wrap_policy, transformer_auto_wrap_policy  # noqa: PLC0415

    classes = {type(block) for block in blocks}
    if settings.method.kind == "full":
        return ModuleWrapPolicy(classes)
    leaves = partial(lambda_auto_wrap_policy, lambda_fn=_is_trained_leaf)
    return partial(_or_policy, policies=[leaves, partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)])


def _is_trained_leaf(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return not list(module.named_children()) and weight is not None and weight.requires_grad
