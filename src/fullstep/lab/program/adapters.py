"""The worksheet's adapter as peft's own config, for every kind that peft has, and what such a model wants to be given beside the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fullstep.job.job import Method, Settings

LORA_FAMILY = ("lora", "qlora", "dora")
VIRTUAL_TOKENS = ("prefix_tuning", "prompt_tuning", "p_tuning", "multitask_prompt_tuning", "cartridge")
"""kinds that put trained tokens before the batch; ``method.rank`` is their number"""
_SIZE = {
    "adalora": "init_r", "adaption_prompt": "adapter_len", "boft": "boft_block_size", "c3a": "block_size", "fourierft": "n_frequency",
    "waveft": "n_frequency",
}  # fmt: skip
"""what ``method.rank`` sets where peft calls the size of the adapter by another name than r"""
_SIZE_NEEDED = (*LORA_FAMILY, *VIRTUAL_TOKENS, "adaption_prompt", "trainable_tokens", "osf")
"""kinds whose size peft asks for, or for which the worksheet has a default; for others peft's own default holds where none is stated"""


def config_class(kind: str) -> Any:
    """peft's config class of a worksheet's kind; None: this version of peft has no such kind."""
    from peft import PeftType  # noqa: PLC0415
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING  # noqa: PLC0415

    name = _peft_name(kind).upper()
    return PEFT_TYPE_TO_CONFIG_MAPPING.get(PeftType(name)) if name in PeftType.__members__ else None


def adapter_config(model: nn.Module, settings: Settings) -> Any:
    """peft's config of the worksheet's adapter, with peft's defaults for what the worksheet cannot say.

    Args:
        model: the class of transformers, inside the fake mode
        settings: of a worksheet whose kind peft has
    """
    method = settings.method
    kind = _peft_name(method.kind)
    cls = config_class(method.kind)
    fields = cls.__dataclass_fields__
    stated = settings.worksheet.section("method")
    keys: dict[str, Any] = {"task_type": "CAUSAL_LM"}
    targets = _targets(model, stated.get("targets"), kind)
    if targets is not None and "target_modules" in fields:
        keys["target_modules"] = targets
    if kind == "ia3" and targets is not None:
        keys |= _ia3_keys(model, targets)
    if "rank" in stated or method.kind in _SIZE_NEEDED:
        keys |= _size_keys(model, kind, method, fields, targets)
    if kind == "lora":
        keys |= {"lora_alpha": method.rank, "lora_dropout": method.dropout, "use_dora": method.kind == "dora"}
    elif method.dropout and f"{kind}_dropout" in fields:
        keys[f"{kind}_dropout"] = method.dropout
    if method.train_modules and "modules_to_save" in fields:
        keys["modules_to_save"] = list(method.train_modules)
    if kind == "adalora":
        keys |= {"total_step": 1000, "target_r": min(keys.get("init_r", fields["init_r"].default), fields["target_r"].default)}
    elif kind == "multitask_prompt_tuning":
        keys["num_tasks"] = 1
    return cls(**keys)


def give_what_it_asks_for(adapted: nn.Module, kind: str) -> None:
    """Kinds that have to be told the task of each row are told that there is one."""
    if kind not in ("poly", "multitask_prompt_tuning"):
        return

    def give(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        rows: Tensor = kwargs["input_ids"]
        return args, {**kwargs, "task_ids": torch.zeros(rows.shape[0], dtype=torch.long, device=rows.device)}

    adapted.register_forward_pre_hook(give, with_kwargs=True)


def _peft_name(kind: str) -> str:
    return "lora" if kind in LORA_FAMILY else kind


def _size_keys(model: nn.Module, kind: str, method: Method, fields: Any, targets: Any) -> dict[str, Any]:
    rank = method.rank
    special: dict[str, Callable[[], dict[str, Any]]] = {
        "oft": lambda: {"r": rank, "oft_block_size": 0},
        "osf": lambda: {"rank_pattern": _trained_directions(model, rank, targets)},
        "trainable_tokens": lambda: {"token_indices": list(range(rank))},
        "adaption_prompt": lambda: {"adapter_len": rank, "adapter_layers": _layers(model)},
    }  # fmt: skip
    if kind in special:
        return special[kind]()
    name = "num_virtual_tokens" if kind in VIRTUAL_TOKENS else _SIZE.get(kind, "r")
    return {name: rank} if name in fields else {}


def _layers(model: nn.Module) -> int:
    config: Any = model.config
    return int(config.num_hidden_layers)


def _trained_directions(model: nn.Module, rank: int, targets: Any) -> dict[str, int]:
    """OSF is told how many singular directions stay frozen: all but ``rank``, by module."""
    frozen = {}
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Linear) and (targets in (None, "all-linear") or last in targets):
            frozen[last] = max(min(module.in_features, module.out_features) - rank, 1)
    return frozen


def _targets(model: nn.Module, stated: Any, kind: str) -> Any:
    """As stated; else None where peft needs none; else peft's default for this model type; else all linear layers.

    The default is named, since peft 0.21 does not look for it where it converts targets for stacked experts. That of IA3 comes with its
    feed-forward modules, if nothing is named.
    """
    if stated is not None:
        return stated if isinstance(stated, str) else list(stated)
    if kind in ("trainable_tokens", "adaption_prompt", "shadow", *VIRTUAL_TOKENS):
        return None
    from peft import PeftType  # noqa: PLC0415
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING  # noqa: PLC0415
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING  # noqa: PLC0415

    tuner = PEFT_TYPE_TO_TUNER_MAPPING[PeftType(kind.upper())]
    table = TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING if kind == "ia3" else getattr(tuner, "target_module_mapping", {})
    config: Any = model.config
    if config.model_type not in table:
        return "all-linear"
    return None if kind == "ia3" else table[config.model_type]


def _ia3_keys(model: nn.Module, targets: Any) -> dict[str, Any]:
    """IA3 scales the input of modules behind the wide layer of a feed-forward block, and the output of all others; it wants these named."""
    if targets == "all-linear":
        head: Any = getattr(model, "get_output_embeddings", lambda: None)()
        linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head]
        targets = sorted({name.rpartition(".")[2] for name in linears})
    return {"target_modules": targets, "feedforward_modules": [name for name in targets if _is_feed_forward(model, name)]}


def _is_feed_forward(model: nn.Module, target: str) -> bool:
    config: Any = model.config
    hidden = config.hidden_size
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == target and isinstance(module, nn.Linear):
            return module.in_features != hidden and module.out_features == hidden
    return False
