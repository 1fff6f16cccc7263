"""Steps and memory of one's own training, measured with one line in it.

::

    from fullstep.probing import probing

    with probing("evidence"):
        train()

or, for transformers' Trainer, ``callbacks=[ProbeCallback("evidence")]``. Each process that makes optimizer steps leaves a file of lines in
the folder, step by step; ``fullstep probe --seen evidence`` tells what they come to. ``fullstep probe -- CMD`` does the same with no line
of yours.

Importing this package loads no torch; its parts are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fullstep.probing.block import probing
    from fullstep.probing.trainer import ProbeCallback

_HOME = {"ProbeCallback": "trainer", "probing": "block"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"fullstep.probing.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fullstep.probing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOME)


__all__ = ["ProbeCallback", "probing"]
