"""What the worksheet trains: the whole model, or peft's real adapters on it; and what is recomputed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from fullstep.errors import Fault, UnsupportedError
from fullstep.job.job import Settings
from fullstep.lab.program.adapters import adapter_config, config_class, give_what_it_asks_for
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.program.versions import recomputes_reentrantly, recomputes_units

_LONGEST_REASON = 400


def adapted(model: nn.Module, settings: Settings) -> nn.Module:
    """The model as it is trained: itself, or peft's model around it.

    Raises:
        UnsupportedError: this version of peft does not have the kind, or refuses it for this model
    """
    method = settings.method
    if method.kind == "full":
        return model
    if config_class(method.kind) is None:
        found = f'"{method.kind}", which peft {version("peft")} does not have'
        raise UnsupportedError(Fault("method.kind", found, "a kind of peft", "A newer version may have it."))
    from peft import get_peft_model  # noqa: PLC0415

    try:
        config = adapter_config(model, settings)
        found_model: nn.Module = get_peft_model(model, config, autocast_adapter_dtype=settings.precision.adapters == "float32")
    except (ValueError, KeyError, TypeError, NotImplementedError, AttributeError, ImportError) as error:
        found = f'"{method.kind}", which peft refuses here: {_first_line(error)}'
        allowed = "a kind, method.rank and method.targets that peft takes for this model"
        raise UnsupportedError(Fault("method.kind", found, allowed)) from error
    give_what_it_asks_for(found_model, method.kind)
    if settings.precision.adapters not in ("float32", settings.precision.weights):
        for parameter in found_model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(DTYPES[settings.precision.adapters])
    found_model.train()
    return found_model


def checkpoint_activations(model: nn.Module, blocks: Sequence[nn.Module], settings: Settings) -> None:
    """Recomputation as the worksheet says: every block, every n-th, or torch's selective form that keeps matrix products and attention.

    Where the worksheet's transformers recomputed whole units of FSDP1, that is left to :func:`flat_shards.recompute_units`.

    Args:
        model: of transformers, or peft's around it
        blocks: its repeated blocks, in order
        settings: of the worksheet

    Raises:
        UnsupportedError: the class has no recomputation
    """
    every = settings.step.activation_checkpointing
    if every == "none":
        return
    switch: Any = model
    if settings.method.kind != "full":
        switch.enable_input_require_grads()
    if recomputes_units(settings):
        return
    keys: dict[str, Any] = {"use_reentrant": recomputes_reentrantly(settings) and every == "full"}
    if every == "selective":
        keys["context_fn"] = _selective
    try:
        if hasattr(model, "activation_checkpointing_enable"):  # transformers 5.23
            switch.activation_checkpointing_enable(activation_checkpointing_kwargs=keys)
        else:
            switch.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keys)
    except (ValueError, AttributeError) as error:
        found = f"{every}, which the model's class refuses: {_first_line(error)}"
        raise UnsupportedError(Fault("step.activation_checkpointing", found, "none")) from error
    if isinstance(every, int):
        for index, block in enumerate(blocks):
            for module in block.modules():
                if hasattr(module, "gradient_checkpointing"):
                    module.gradient_checkpointing = index % every == 0  # type: ignore[assignment]


def _selective() -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts  # noqa: PLC0415

    aten = torch.ops.aten
    kept = [
        aten.mm.default, aten.bmm.default, aten.addmm.default, aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default, aten._grouped_mm.default,
    ]  # fmt: skip
    return create_selective_checkpoint_contexts(kept)


def _first_line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return textwrap.shorten(first, _LONGEST_REASON, placeholder=" ...")
