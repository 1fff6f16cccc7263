"""The losses that a training prints, found in its output."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fullstep.errors import Fault, InputError

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)"
_STEP = re.compile(r"\b(?:step|global_step|iteration|iter)\b\W{0,4}(?P<step>\d{1,15})\b", re.IGNORECASE)
_LOSS = re.compile(rf"\b(?<!eval )(?<!eval_)(?:train_)?loss\b[^\w.+-]{{0,4}}(?P<loss>{_NUMBER})(?![\w])", re.IGNORECASE)
_LONGEST_LINE = 4000
"""a line with a loss is shorter"""
_STEPS = ("step", "global_step", "iteration", "iter")
"""where a table says how far training is"""
_EPOCH = "epoch"
"""the same where there is no step: transformers prints epochs alone"""
_LOSSES = ("loss", "train_loss", "train/loss")
_SUMMARY = "train_runtime"
"""stands in the table with which transformers ends: its loss is the mean of the run"""


class Logged(NamedTuple):
    """A loss that was printed."""

    step: float
    loss: str
    """as it was printed"""
    is_epoch: bool = False
    """``step`` is one: the line tells no step"""


def pattern_of(text: str | None) -> re.Pattern[str] | None:
    """The user's own pattern.

    Raises:
        InputError: it is none, or lacks a group
    """
    if text is None:
        return None
    allowed = "a regular expression of Python with the groups (?P<step>...) and (?P<loss>...)"
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError) as error:
        raise InputError(Fault("--loss-pattern", f'"{text[:60]}": {error}', allowed)) from None
    if not {"step", "loss"} <= pattern.groupindex.keys():
        raise InputError(Fault("--loss-pattern", f'"{text[:60]}"', allowed))
    return pattern


def logged_in(line: str, pattern: re.Pattern[str] | None = None) -> Logged | None:
    """The loss in a line; None: there is none.

    Args:
        line: of the output
        pattern: None: JSON and Python tables with a step and a loss, and texts like "step 3 loss 1.25"

    >>> logged_in("{'loss': '2.31', 'grad_norm': '0.4', 'epoch': '0.5'}")
    Logged(step=0.5, loss='2.31', is_epoch=True)
    >>> logged_in("step: 12 | loss: 1.25 | lr 0.001"), logged_in("loss = 3e-2 in iteration 7/100")
    (Logged(step=12.0, loss='1.25', is_epoch=False), Logged(step=7.0, loss='3e-2', is_epoch=False))
    >>> logged_in("eval_loss 2 at step 3") is None
    True
    """
    if len(line) > _LONGEST_LINE:
        return None
    text = _COLOURS.sub("", line)
    if pattern is not None:
        own = pattern.search(text)
        return None if own is None else _logged(own["step"], own["loss"])
    start = text.find("{")
    if start >= 0 and (found := _in_table(_table(text[start:].strip()))) is not None:
        return found
    step = _STEP.search(text)
    loss = None if step is None else _LOSS.search(text, step.end()) or _LOSS.search(text)
    return None if step is None or loss is None else _logged(step["step"], loss["loss"])


def _logged(step: Any, loss: Any) -> Logged | None:
    """Where both are numbers; a loss may end with what separates it from the next text."""
    try:
        shown = str(loss).strip().rstrip(",;|")
        float(shown)
        number = float(step)
    except (TypeError, ValueError):
        return None
    return Logged(number, shown) if math.isfinite(number) else None


def _table(text: str) -> Mapping[str, Any]:
    if not text.endswith("}"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return {}
    return found if isinstance(found, dict) else {}


def _in_table(table: Mapping[str, Any]) -> Logged | None:
    if _SUMMARY in table:
        return None
    name = next((name for name in (*_STEPS, _EPOCH) if name in table), "")
    loss = next((table[name] for name in _LOSSES if name in table), None)
    found = _logged(table.get(name), loss)
    return None if found is None else found._replace(is_epoch=name == _EPOCH)
