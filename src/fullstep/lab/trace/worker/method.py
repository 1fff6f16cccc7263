"""What the worksheet trains: the whole model, or peft's real adapters on it, over a base in 16 or 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fullstep.errors import Fault, UnsupportedError
from fullstep.job.job import Settings
from fullstep.lab.trace.worker.four_bit import quantize
from fullstep.lab.trace.worker.model import DTYPES

_LORA = ("lora", "qlora", "dora")
_FOUR_BIT = ("nf4", "fp4")
_VIRTUAL_TOKENS = ("prefix_tuning", "prompt_tuning", "p_tuning", "multitask_prompt_tuning", "cpt")


def refuse(settings: Settings) -> list[Fault]:
    """What of the method cannot be traced."""
    method = settings.method
    faults = []
    if method.quantization not in ("none", *_FOUR_BIT):
        faults.append(
            Fault("method.quantization", f'"{method.quantization}", which cannot be traced', f"none, {', '.join(_FOUR_BIT)}", "`fullstep estimate` covers it.")
        )
    if method.objective != "sft":
        faults.append(Fault("method.objective", f'"{method.objective}", which cannot be traced', "sft", "`fullstep estimate` covers it."))
    if method.kind not in ("full", *_LORA, "ia3") and _config_class(method.kind) is None:
        faults.append(Fault("method.kind", f'"{method.kind}", which peft does not have', "a kind of peft"))
    return faults


def apply_method(model: nn.Module, settings: Settings) -> nn.Module:
    """The model as it is trained; for an adapter, peft's model around it. Call it inside the fake mode.

    Raises:
        UnsupportedError: peft refuses the adapter for this model
    """
    method = settings.method
    if method.quantization in _FOUR_BIT:
        _four_bit(model, settings)
    if method.kind == "full":
        return model
    from peft import get_peft_model  # noqa: PLC0415

    try:
        adapted: nn.Module = get_peft_model(
            model, _peft_config(model, settings), autocast_adapter_dtype=settings.precision.adapters == "float32"
        )
    except (ValueError, KeyError, TypeError, NotImplementedError, AttributeError) as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(Fault("method.kind", f'peft refuses "{method.kind}" here: {text[0][:200]}', "a kind and targets that peft takes")) from error
    if settings.precision.adapters not in ("float32", settings.precision.weights):
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(DTYPES[settings.precision.adapters])
    adapted.train()
    return adapted


def checkpoint_activations(model: nn.Module, blocks: Sequence[nn.Module], settings: Settings) -> None:
    """Recomputation as the worksheet says: every block, every n-th, or torch's selective form that keeps matrix products and attention."""
    every = settings.step.activation_checkpointing
    if every == "none":
        return
    switch: Any = model
    keys: dict[str, Any] = {"use_reentrant": False}
    if every == "selective":
        keys["context_fn"] = _selective
    try:
        switch.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keys)
    except ValueError as error:
        raise UnsupportedError(Fault("step.activation_checkpointing", f"the class refuses it: {error}", "none")) from error
    if isinstance(every, int):
        for index, block in enumerate(blocks):
            for module in block.modules():
                if hasattr(module, "gradient_checkpointing"):
                    module.gradient_checkpointing = index % every == 0  # type: ignore[assignment]
    if settings.method.kind != "full":
        switch.enable_input_require_grads()


def _selective() -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts  # noqa: PLC0415

    aten = torch.ops.aten
    kept = [
        aten.mm.default, aten.bmm.default, aten.addmm.default, aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default, aten._grouped_mm.default,
    ]  # fmt: skip
    return create_selective_checkpoint_contexts(kept)


def _four_bit(model: nn.Module, settings: Settings) -> None:
    method = settings.method
    head = getattr(model, "get_output_embeddings", lambda: None)()
    quantize(model, keep=(head,), dtype=DTYPES[settings.precision.compute], twice=method.double_quantization)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if method.upcast_unquantized and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.to(torch.float32)


def _config_class(kind: str) -> Any:
    from peft import PeftType  # noqa: PLC0415
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING  # noqa: PLC0415

    name = kind.upper()
    return PEFT_TYPE_TO_CONFIG_MAPPING.get(PeftType(name)) if name in PeftType.__members__ else None


def _peft_config(model: nn.Module, settings: Settings) -> Any:
    """peft's own config, with its defaults for what the worksheet does not say."""
    method = settings.method
    stated = settings.worksheet.section("method")
    kind = "lora" if method.kind in _LORA else method.kind
    cls = _config_class(kind)
    fields = cls.__dataclass_fields__
    keys: dict[str, Any] = {"task_type": "CAUSAL_LM"}
    if kind == "lora":
        keys |= {"r": method.rank, "lora_alpha": method.rank, "lora_dropout": method.dropout, "use_dora": method.kind == "dora"}
    elif "rank" in stated:
        name = next((name for name in ("r", "rank", "num_virtual_tokens", "n_frequency") if name in fields), None)
        if name is not None:
            keys[name] = method.rank
    elif kind in _VIRTUAL_TOKENS:
        keys["num_virtual_tokens"] = method.rank
    targets = _targets(model, settings, kind)
    if targets is not None and "target_modules" in fields:
        keys["target_modules"] = targets
        if kind == "ia3":
            keys["feedforward_modules"] = [name for name in targets if _is_feed_forward(model, name)] if targets != "all-linear" else []
    if method.train_modules and "modules_to_save" in fields:
        keys["modules_to_save"] = list(method.train_modules)
    return cls(**keys)


def _targets(model: nn.Module, settings: Settings, kind: str) -> Any:
    """As stated; else None where peft has a default for this model type; else all linear layers."""
    stated = settings.worksheet.section("method").get("targets")
    if stated is not None:
        return stated if stated == "all-linear" else list(stated)
    from peft.utils import constants  # noqa: PLC0415

    table = getattr(constants, f"TRANSFORMERS_MODELS_TO_{kind.upper()}_TARGET_MODULES_MAPPING", None)
    if table is None:
        table = constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    config: Any = model.config
    return None if config.model_type in table else "all-linear"


def _is_feed_forward(model: nn.Module, target: str) -> bool:
    """Its input is as wide as the feed-forward layer: IA3 scales that instead of the output."""
    config: Any = model.config
    hidden = config.hidden_size
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == target and isinstance(module, nn.Linear):
            return module.in_features != hidden and module.out_features == hidden
    return False
