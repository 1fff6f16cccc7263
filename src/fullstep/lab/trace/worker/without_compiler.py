"""torch's compiler is not loaded: nothing of a trace is compiled, and it takes longer to load than a trace takes to run.

Libraries touch ``torch._dynamo`` to mark functions that it should leave alone, and transformers takes one context manager from it.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import Any

_NAME = "torch._dynamo"
_HIGHER_ORDER = f"{_NAME}._trace_wrapped_higher_order_op"


def _leave_alone(function: Any = None, *_: Any, **__: Any) -> Any:
    return function if function is not None else _leave_alone


class _Compiler(ModuleType):
    """Says that nothing is compiled; loads the real module for whoever wants more of it."""

    disable = staticmethod(_leave_alone)
    graph_break = staticmethod(lambda *_, **__: None)
    is_compiling = staticmethod(lambda: False)
    is_dynamo_supported = staticmethod(lambda: False)
    mark_static_address = staticmethod(lambda *_, **__: None)
    allow_in_graph = staticmethod(_leave_alone)
    disallow_in_graph = staticmethod(_leave_alone)
    assume_constant_result = staticmethod(_leave_alone)
    nonstrict_trace = staticmethod(_leave_alone)
    forbid_in_graph = staticmethod(_leave_alone)
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(_NAME, None)
        sys.modules.pop(_HIGHER_ORDER, None)
        return getattr(importlib.import_module(_NAME), name)


def load_no_compiler() -> None:
    """Puts a stand-in where the compiler would be loaded. Call it before torch is; afterwards it does nothing."""
    if "torch" in sys.modules or _NAME in sys.modules:
        return
    sys.modules[_NAME] = _Compiler(_NAME)
    higher_order: Any = ModuleType(_HIGHER_ORDER)
    higher_order.TransformGetItemToIndex = contextlib.nullcontext
    sys.modules[_HIGHER_ORDER] = higher_order
