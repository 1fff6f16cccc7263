"""Tensors cut over ranks by the plan that the class of transformers brings along; collectives are torch's own, on a fake process group.

Source: transformers 5.23, distributed/tensor_parallel.py (apply_tensor_parallelism), distributed/mixin.py (_resolve_parallel_plans).
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from fullstep.errors import Fault, UnsupportedError


def cut_tensors(model: nn.Module, mesh: DeviceMesh) -> None:
    """Cuts the parameters that the plan names, and puts its collectives around their modules.

    Args:
        model: of transformers, whole
        mesh: of the ranks among which tensors are cut

    Raises:
        UnsupportedError: the class has no plan, or its heads cannot be divided among the ranks
    """
    from transformers.distributed import DistributedConfig  # noqa: PLC0415
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism  # noqa: PLC0415

    planned: Any = model
    ranks = mesh.size()
    if not getattr(planned, "tp_plan", None):
        raise UnsupportedError(_fault(ranks, f"{type(model).__name__} has no plan for it", "1"))
    config = planned.config.get_text_config()
    for key in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, key, None)
        if isinstance(heads, int) and heads % ranks:
            raise UnsupportedError(_fault(ranks, f"{key} is {heads}", f"a divisor of {heads}"))
    try:
        plan = planned._resolve_parallel_plans(DistributedConfig(tp_size=ranks))[0]
        apply_tensor_parallelism(model, mesh, plan)
    except KeyError as error:  # the class's own plan, with a parameter that is another one's
        raise UnsupportedError(_fault(ranks, f"its plan names {error.args[0]}, which is tied to another parameter", "1")) from error
    except (ValueError, NotImplementedError) as error:
        raise UnsupportedError(_fault(ranks, str(error).strip().splitlines()[0][:200], "1")) from error


def _fault(ranks: int, why: str, allowed: str) -> Fault:
    return Fault("layout.tensor", f"{ranks}, which cannot be traced here: {why}", allowed, "`fullstep estimate` covers it.")
