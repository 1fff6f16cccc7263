"""Memory habits of training frameworks, by version, from the table ``data/habits.json`` where each has its source."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fullstep.job.job import GradientsCleared, Loading, Settings
from fullstep.quantities import DType

_TABLE = Path(__file__).parent / "data" / "habits.json"
_NUMBERS = re.compile(r"[0-9]+")
HUGGING_FACE = ("transformers", "axolotl", "llamafactory", "fms_acceleration", "unsloth", "deepspeed")
"""frameworks whose models are the classes of transformers and whose checkpointing is its Trainer's"""
RUNS_TRANSFORMERS = (*HUGGING_FACE, "fsdp_qlora")
"""frameworks whose models are the classes of transformers, whoever wraps them"""
CASTS_IN_THE_LOSS = (4, 46)
"""version of transformers from which on logits become float32 in the loss, where the model's own live on beside them"""
SHIFTS_LABELS = (4, 50)
"""version of transformers from which on labels are shifted; before, the logits without the last position were copied out.
Source of both: transformers, loss/loss_utils.py and the models' forward, 4.45 to 5.23"""
NOT_REENTRANT = (5,)
"""version of transformers from which on checkpointing is not torch's reentrant kind. Source: modeling_utils.py,
gradient_checkpointing_enable"""
WINDOW_UNDER_SDPA = (4, 40)
"""version of transformers from which on sdpa keeps to a sliding window; before, rows were attended whole, without a mask. Source:
modeling_mistral.py and modeling_qwen2.py, _prepare_4d_causal_attention_mask_for_sdpa in forward, 4.37.2 and 4.40.2"""
STACKS_EXPERTS = (5,)
"""version of transformers from which on the experts of a block are one parameter, which 4-bit layers do not take the place of"""


class Habits(NamedTuple):
    """What a framework of a version does when nobody asks it to do otherwise; ``reasons`` by field, for people."""

    version: str
    """the version looked up; "newest" where the table knows no number"""
    loss_input_dtype: DType
    keeps_outputs: bool
    gradients_cleared: GradientsCleared
    loading: Loading
    reasons: dict[str, str]
    one_dtype: bool = False
    """adapters and the reduction of gradients have the dtype of the weights"""


def version_numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare; what is no number counts as newest.

    >>> version_numbers("4.48.1") < version_numbers("4.57") < version_numbers("newest")
    True
    """
    head = version.split("+", 1)[0]
    numbers = tuple(int(number) for number in _NUMBERS.findall(head)[:4])
    return numbers or (10**6,)


@lru_cache(maxsize=512)
def transformers_numbers(framework: str, version: str) -> tuple[int, ...] | None:
    """Version of transformers whose model classes a framework runs; its newest where unknown, None for one with models of its own.

    >>> [transformers_numbers(*known) for known in (("fms_acceleration", "4.45.2"), ("fsdp_qlora", "newest"), ("torchtitan", "0.2"))]
    [(4, 45, 2), (4, 37), None]
    """
    if framework not in RUNS_TRANSFORMERS:
        return None
    entry = _table()[framework]
    states_it = framework == "transformers" or entry.get("version_of") == "transformers"
    return version_numbers(version if states_it else entry.get("transformers", _table()["transformers"]["newest"]))


@lru_cache(maxsize=512)
def habits_of(framework: str, version: str | None, implementation: str, sharded: str) -> Habits:
    """Habits of ``framework`` at ``version`` (None: newest known) under a layout.

    Args:
        framework: a value of ``step.framework``.
        version: as stated, or None.
        implementation: a value of ``layout.implementation``.
        sharded: "fsdp", "zero" or "" by strategy.
    """
    table = _table()
    entry = table[framework]
    version = version or entry["newest"]
    # a framework built on transformers with versions of its own is taken to run on the newest transformers
    numbers = version_numbers(version) if entry.get("version_of") in (None, "transformers") else version_numbers("newest")
    rows = [*table[entry["like"]]["rows"], *entry["rows"]] if "like" in entry else entry["rows"]
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    known_as = framework if version == "newest" else f"{framework} {version}"
    for row in rows:
        if holds(row, numbers, implementation, sharded):
            for field in ("loss_input_dtype", "keeps_outputs", "gradients_cleared", "loading", "one_dtype"):
                if field in row:
                    found[field] = row[field]
                    reasons[field] = f"{known_as}: {row['why']}"
    return Habits(version=version, reasons=reasons, **found)


def holds(row: dict[str, Any], numbers: tuple[int, ...], implementation: str, sharded: str) -> bool:
    """Whether a row of the table holds for a version and layout."""
    if "from" in row and numbers < version_numbers(row["from"]):
        return False
    if "below" in row and numbers >= version_numbers(row["below"]):
        return False
    return bool(row.get("layout_implementation", implementation) == implementation and row.get("sharded", sharded) == sharded)


@cache
def _table() -> dict[str, Any]:
    frameworks: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))["frameworks"]
    return frameworks


def prefetches_units(settings: Settings) -> bool:
    """The next unit is gathered while one is in use: FSDP2, and FSDP1 as torch has it (BACKWARD_PRE); accelerate's FSDP1 plugin
    leaves backward_prefetch at NO_PREFETCH unless told otherwise."""
    if settings.layout.prefetch_units is not None:
        return settings.layout.prefetch_units > 0
    return not (settings.layout.implementation == "fsdp1" and settings.step.framework in HUGGING_FACE)
