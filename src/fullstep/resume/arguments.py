"""What may be asked of checkpoints: looked at before anything is written."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from fullstep.resume.errors import SaveError
from fullstep.resume.guarded_script import require_guarded_script
from fullstep.resume.ranks import Ranks
from fullstep.resume.state import UNTOUCHED


def whole_step(step: int) -> int:
    """Of numpy or torch as well."""
    try:
        whole = operator.index(step)
    except TypeError:
        whole = -1
    if whole < 0:
        raise ValueError(f"step = {step!r}: a whole number from 0 on")
    return whole


def agreed_step(step: int, note: Mapping[str, Any] | None, ranks: Ranks) -> int:
    """The step, the same on all ranks; what one of them cannot save, none saves.

    Raises:
        ValueError: this rank cannot
        SaveError: another one cannot, or saves another step
    """
    wrong: ValueError | None = None
    try:
        step = whole_step(step)
        require_json(note)
    except ValueError as error:
        wrong = error
    told = ranks.share((step, str(wrong or "")), SaveError)
    if wrong is not None:
        raise wrong
    for rank, (other, why) in enumerate(told):
        if why or other != step:
            raise SaveError(f"rank {rank}: {why or f'saves step {other}, and rank {ranks.rank} saves step {step}'}")
    return step


def require_json(note: Mapping[str, Any] | None) -> None:
    """It is written last, when all else has been."""
    try:
        json.dumps(dict(note or {}), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"note: {error}") from None


def require_sound(keep: int, mode: str, optimizer: Optimizer | None, extra: Mapping[str, Any]) -> None:
    if not isinstance(keep, int) or keep < 1:
        raise ValueError(f"keep = {keep!r}: a whole number, at least 1, the newest")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS has no states until it has stepped with its closure, so that none can be loaded: another optimizer")
    if mode not in ("sync", "thread", "process"):
        raise ValueError(f"mode = {mode!r}: allowed are sync, thread, process")
    if mode == "process" and not (dist.is_available() and dist.is_initialized()):
        raise ValueError("mode = 'process' needs torch.distributed: start it by torchrun, with one process or more")
    if mode == "process":
        require_guarded_script()
    if taken := {"model", "optimizer", "scheduler", "loader", "rng", UNTOUCHED} & set(extra):
        raise ValueError(f"extra = {sorted(taken)}: these names are taken")
    if dotted := [name for name in extra if "." in name]:
        raise ValueError(f"extra = {dotted}: a name has no dot")
