"""Defaults of the section method: the kind of adapter, where it sits, and the number format of the frozen base."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fullstep.job.defaults.filler import Filler
from fullstep.job.habits import STACKS_EXPERTS
from fullstep.job.job import Method
from fullstep.job.keys import COVERED_METHODS, COVERED_OBJECTIVES, REFUSED_OBJECTIVES, TRACED_METHODS
from fullstep.models import EXPERT_TARGETS, ModelShape

LORA_FAMILY = frozenset(("lora", "qlora", "dora"))
IA3_TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("llama", "mistral"), ("k_proj", "v_proj", "down_proj")),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), ("q_proj", "v_proj", "down_proj")),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("c_attn", "c_proj")),
    **dict.fromkeys(("gpt_neox", "bloom", "falcon"), ("query_key_value", "dense_4h_to_h")),
    "mixtral": ("k_proj", "v_proj", "w2"),
    "opt": ("q_proj", "k_proj", "fc2"),
    "gptj": ("q_proj", "v_proj", "fc_out"),
    "phi": ("q_proj", "v_proj", "fc2"),
}
"""peft 0.21.2, TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING"""


def method_of(filler: Filler, values: Mapping[str, Any], shape: ModelShape | None) -> Method:
    """The whole section. Kinds and objectives that the formulas do not cover are noted as such."""
    take = filler.take
    kind = take(values, "kind", "method.kind", "full", "full fine-tuning unless an adapter is named")
    objective = take(values, "objective", "method.objective", "sft", "supervised fine-tuning unless another loss is named")
    if kind in TRACED_METHODS:
        allowed = ", ".join(COVERED_METHODS)
        remedy = "`fullstep trace WORKSHEET` runs one step of it without a GPU. Or size the nearest kind that is allowed."
        filler.not_covered("method.kind", f'"{kind}", which the formulas do not cover', allowed, remedy)
    if objective != "sft" and objective not in REFUSED_OBJECTIVES:
        filler.caution("F108", f"method.objective = {objective} is sized and timed as sft: no pairs of rows and no reference model")
    if objective in REFUSED_OBJECTIVES:
        allowed = ", ".join(COVERED_OBJECTIVES)
        filler.not_covered("method.objective", f'"{objective}", which is not covered yet', allowed, "Size its policy update as sft.")
    filler.full = kind == "full"
    if filler.full:
        return _full(filler, values, objective)
    rank = 16
    if kind != "ia3":
        rank = take(values, "rank", "method.rank", 16, "a common choice")
    quantization, double, upcast = _quantization(filler, values, kind)
    return Method(
        kind=kind,
        rank=rank,
        targets=_targets(filler, values, kind, shape),
        train_modules=_train_modules(filler, values, shape),
        dropout=take(values, "dropout", "method.dropout", 0, "peft's default") if kind in LORA_FAMILY else values.get("dropout", 0),
        stacked_experts=filler.transformers is not None and filler.transformers >= STACKS_EXPERTS,
        quantization=quantization,
        double_quantization=double,
        upcast_unquantized=upcast,
        objective=objective,
    )


def _full(filler: Filler, values: Mapping[str, Any], objective: Any) -> Method:
    if values.get("quantization", "none") != "none":
        found = f'"{values["quantization"]}" with method.kind "full"'
        remedy = 'A quantized base stays frozen: use an adapter (method.kind = "qlora").'
        filler.fault("method.quantization", found, "none", remedy, ("method.kind",))
    idle = [name for name in ("rank", "targets", "dropout", "double_quantization", "upcast_unquantized") if name in values]
    idle += ["train_modules"] if values.get("train_modules") else []
    if idle:
        text = ", ".join(f"method.{name}" for name in idle)
        filler.caution("F001", f"{text} without effect: full fine-tuning has no adapter and no frozen base")
    return Method(
        kind="full", rank=0, targets=(), train_modules=(), dropout=0, stacked_experts=False, quantization="none",
        double_quantization=False, upcast_unquantized=False, objective=objective,
    )  # fmt: skip


def _quantization(filler: Filler, values: Mapping[str, Any], kind: str) -> tuple[Any, bool, bool]:
    take = filler.take
    qlora = kind == "qlora"
    why = "QLoRA's number format" if qlora else "the base is not quantized unless that is asked for"
    quantization = take(values, "quantization", "method.quantization", "nf4" if qlora else "none", why)
    if quantization == "none":
        if qlora:
            allowed = "nf4, fp4, int8, fp8, gptq, mxfp4"
            filler.fault("method.quantization", '"none" with method.kind "qlora"', allowed, 'Or use method.kind = "lora".')
        idle = [name for name in ("double_quantization", "upcast_unquantized") if values.get(name)]
        if idle:
            filler.caution("F001", f"{', '.join('method.' + name for name in idle)} without effect: the base is not quantized")
        return quantization, False, False
    double = values.get("double_quantization", False)
    if quantization in ("nf4", "fp4"):
        double = take(values, "double_quantization", "method.double_quantization", False, "default of bitsandbytes")
    stated = filler.worksheet.section("precision").get("weights") not in (None, "float32")
    upcasts = qlora and filler.framework == "transformers" and quantization != "gptq" and not stated
    if stated:
        why = "precision.weights states the dtype of what is not quantized"
    elif upcasts:
        why = "peft's prepare_model_for_kbit_training casts what is not quantized to float32"
    elif quantization == "gptq":
        why = "peft's prepare_model_for_kbit_training leaves the dtypes of a GPTQ model alone"
    else:
        why = "not done by this framework"
    return quantization, double, take(values, "upcast_unquantized", "method.upcast_unquantized", upcasts, why)


@lru_cache(maxsize=256)
def _modules(shape: ModelShape) -> frozenset[str]:
    """Names of everything that an adapter may be told to train."""
    linears = {linear.name for block in shape.blocks for linear in block.linears}
    return frozenset(linears | {shape.embedding_name, shape.head_name} | EXPERT_TARGETS.get(shape.model_type, {}).keys())


@lru_cache(maxsize=256)
def _stacked(shape: ModelShape) -> dict[str, str]:
    """Names of stacked experts and routers, and those of the modules in their place, to the targets that they are."""
    own = {linear.name: linear.adapter_target for block in shape.blocks for linear in block.linears if linear.stacked}
    return own | EXPERT_TARGETS.get(shape.model_type, {})


def _with_experts(filler: Filler, kind: str, shape: ModelShape, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Targets (None: all linear layers) with experts and routers among them.

    Until transformers 5 these are modules like all others. Since then peft adapts the parameters in place of the modules' names, which
    it takes away from dense layers of the same name; for LoRA only, and under "all-linear" for the types of EXPERT_TARGETS only.
    """
    stacked = _stacked(shape)
    if names is None and (not stacked or filler.transformers is None):
        return shape.linear_names
    if filler.transformers is not None and filler.transformers < STACKS_EXPERTS:
        wanted = shape.linear_names if names is None else names
        dense = [name for name in wanted if name in shape.linear_names]
        return tuple(dict.fromkeys([*dense, *(target for name, target in stacked.items() if names is None or name in names)]))
    if kind not in ("lora", "qlora") or (names is None and shape.model_type not in EXPERT_TARGETS):
        return shape.linear_names if names is None else names
    every = (*shape.linear_names, *stacked)
    return tuple(dict.fromkeys(stacked.get(name, name) for name in (every if names is None else names)))


def _targets(filler: Filler, values: Mapping[str, Any], kind: str, shape: ModelShape | None) -> tuple[str, ...]:
    if kind in ("prefix_tuning", "bottleneck"):
        if "targets" in values:
            filler.caution("F001", f"method.targets without effect under {kind}")
        return ()
    if shape is None or kind in TRACED_METHODS:  # peft looks them up in the model's class
        stated = filler.take(values, "targets", "method.targets", (), "what peft takes where none are named")
        return (stated,) if isinstance(stated, str) else tuple(stated)
    known = _modules(shape)
    stated = values.get("targets")
    if stated is None:
        usual = IA3_TARGETS.get(shape.model_type, ()) if kind == "ia3" else shape.default_adapter_targets
        usual = tuple(name for name in usual if name in known)
        if usual:
            filler.take(values, "targets", "method.targets", usual, f"peft's default for {shape.model_type}")
            return _with_experts(filler, kind, shape, usual)
        stated = filler.take(values, "targets", "method.targets", "all-linear", f"peft has no default for {shape.model_type}")
    if stated == "all-linear":
        return _with_experts(filler, kind, shape, None)
    found = tuple(dict.fromkeys(last for name in stated if (last := name.rpartition(".")[2]) in known))
    if not found:
        shown = ", ".join(name[:60] for name in stated[:8]) or "an empty list"
        allowed = f'"all-linear" or some of {", ".join(sorted(known))}'
        filler.fault("method.targets", f"{shown}: no module of {shape.name}", allowed, beside=("method.kind",))
        return ()
    if len(found) < len(stated):
        missing = [name for name in stated if name.rpartition(".")[2] not in known]
        if missing:
            filler.caution("F002", f"no module of {shape.name} is called {', '.join(missing[:8])}: no adapter there")
    return _with_experts(filler, kind, shape, found)


def _train_modules(filler: Filler, values: Mapping[str, Any], shape: ModelShape | None) -> tuple[str, ...]:
    stated = filler.take(values, "train_modules", "method.train_modules", (), "nothing is trained in full beside the adapter")
    if not stated or shape is None:
        return tuple(stated)
    known = _modules(shape)
    names = tuple(dict.fromkeys(name.rpartition(".")[2] for name in stated))
    missing = [name for name in names if name not in known and "norm" not in name and "ln" not in name]
    if missing:
        filler.caution("F002", f"no module of {shape.name} is called {', '.join(missing[:8])}: nothing of method.train_modules there")
    return tuple(name for name in names if name not in missing)
