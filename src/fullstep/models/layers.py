"""Which layers slide, rotate and hold experts: lists of one entry a layer, from the config or its class's own rule."""

from __future__ import annotations

from typing import Any

from fullstep.models.architecture import AttentionPlan, ExpertsPlan
from fullstep.models.reader import LARGEST_LAYERS, ConfigReader

_WINDOW_WORDS = ("full_attention", "sliding_attention", "chunked_attention")
_EXPERT_WORDS = ("dense", "sparse")


def layer_windows(reader: ConfigReader, plan: AttentionPlan, layers: int) -> list[int | None]:
    """Tokens that each layer looks back on; None: all.

    ``every``: all layers slide when the config has a window, whatever ``layer_types`` says; ``all``: the same, but
    ``layer_types`` goes first, as in the rest: ``qwen``: those from ``max_window_layers`` on; ``qwen_moe``: every second one
    before it; ``alternate``: every second one, from the first on; ``pattern``: all but each n-th; ``first_pattern``: all but
    the first of each four; ``unrotated``: those without rotary positions; ``only_stated``: none;
    ``chunked``: those with rotary positions look back within chunks; ``local``: by GPT-Neo's ``attention_types``.
    """
    if plan.windows == "none":
        return [None] * layers
    if plan.windows == "local":
        return _local_windows(reader, layers)
    window = reader.optional_whole("attention_chunk_size" if plan.windows == "chunked" else "sliding_window", low=0)
    if not window or not reader.flag("use_sliding_window"):
        return [None] * layers
    if plan.windows == "every":
        return [window] * layers
    kinds = reader.words("layer_types", _WINDOW_WORDS, layers)
    if kinds is not None:
        return [None if kind == "full_attention" else window for kind in kinds]
    return [window if slides else None for slides in _sliding_by_rule(reader, plan, layers)]


def _sliding_by_rule(reader: ConfigReader, plan: AttentionPlan, layers: int) -> list[bool]:
    if plan.windows in ("all", "only_stated"):
        return [plan.windows == "all"] * layers
    if plan.windows == "qwen":
        first = reader.whole("max_window_layers", low=0, high=LARGEST_LAYERS)
        return [layer >= first for layer in range(layers)]
    if plan.windows == "qwen_moe":
        last = reader.whole("max_window_layers", low=0, high=LARGEST_LAYERS)
        return [layer % 2 == 0 and layer < last for layer in range(layers)]
    if plan.windows == "unrotated":
        return [not rotates for rotates in _stated_rotations(reader, layers)]
    if plan.windows == "chunked":
        return _stated_rotations(reader, layers)
    if plan.windows == "alternate":
        return [layer % 2 == 0 for layer in range(layers)]
    if plan.windows == "first_pattern":
        return [layer % 4 != 0 for layer in range(layers)]
    period = reader.whole("sliding_window_pattern", high=LARGEST_LAYERS)
    return [(layer + 1) % period != 0 for layer in range(layers)]


def _local_windows(reader: ConfigReader, layers: int) -> list[int | None]:
    window = reader.whole("window_size")
    kinds: list[Any] = []
    groups = reader.raw("attention_types")
    for group in groups if isinstance(groups, list) else []:
        if not (isinstance(group, list) and len(group) == 2 and isinstance(group[0], list) and type(group[1]) is int):
            kinds = []
            break
        kinds += group[0] * min(max(group[1], 0), LARGEST_LAYERS)
        if len(kinds) > LARGEST_LAYERS:
            break
    if len(kinds) != layers or any(kind not in ("global", "local") for kind in kinds):
        reader.fault("attention_types", "the list does not give each layer its kind", f"global or local for {layers} layers")
        return [None] * layers
    return [window if kind == "local" else None for kind in kinds]


def layer_rotations(reader: ConfigReader, plan: AttentionPlan, windows: list[int | None]) -> list[bool]:
    """Whether each layer rotates queries and keys."""
    layers = len(windows)
    if plan.unrotated == "full":
        return [window is not None for window in windows] if any(windows) else [True] * layers
    return [True] * layers if plan.unrotated == "none" else _stated_rotations(reader, layers)


def _stated_rotations(reader: ConfigReader, layers: int) -> list[bool]:
    stated = reader.raw("no_rope_layers")
    if isinstance(stated, list) and len(stated) == layers and all(entry in (0, 1) for entry in stated):
        return [bool(entry) for entry in stated]
    if stated:
        reader.fault("no_rope_layers", "the list does not fit the layers", f"a list of {layers} of 0 (no rotary positions) and 1")
    interval = reader.whole("no_rope_layer_interval", high=LARGEST_LAYERS)
    return [(layer + 1) % interval != 0 for layer in range(layers)]


def layer_experts(reader: ConfigReader, plan: ExpertsPlan | None, layers: int) -> list[bool]:
    """Whether each layer is a mixture of experts."""
    if plan is None:
        return [False] * layers
    kinds = reader.words("mlp_layer_types", _EXPERT_WORDS, layers)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    if plan.sparse == "first_dense":
        first = reader.whole("first_k_dense_replace", low=0, high=LARGEST_LAYERS)
        return [layer >= first for layer in range(layers)]
    if plan.sparse == "qwen":
        dense = reader.raw("mlp_only_layers") or []
        dense = set(dense) if isinstance(dense, list) and all(type(layer) is int for layer in dense) else set()
        step = reader.whole("decoder_sparse_step", high=LARGEST_LAYERS)
        return [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]
    if plan.sparse == "llama4":
        stated = reader.raw("moe_layers")
        step = reader.whole("interleave_moe_layer_step", high=LARGEST_LAYERS)
        return [layer in stated if isinstance(stated, list) else (layer + 1) % step == 0 for layer in range(layers)]
    if plan.sparse == "ernie":
        return _between(reader, layers)
    return [True] * layers


def _between(reader: ConfigReader, layers: int) -> list[bool]:
    start = reader.whole("moe_layer_start_index", low=0, high=LARGEST_LAYERS)
    end = reader.raw("moe_layer_end_index")
    end = layers - 1 if end == -1 else reader.whole("moe_layer_end_index", low=0, high=LARGEST_LAYERS)
    interval = reader.whole("moe_layer_interval", high=LARGEST_LAYERS)
    return [start <= layer <= end and (layer + 1) % interval == 0 for layer in range(layers)]
