"""Python imports this at its start, from PYTHONPATH: it waits for the program to import torch, and begins to watch its steps then.

It needs nothing but Python, and runs in somebody's own program: whatever goes wrong here is written down, and the program goes on.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # no more imports than there must be
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
_FOLDER = "FULLSTEP_PROBE_FOLDER"


class _Torch:
    """A finder that finds nothing by itself: what the others find of torch gets a word to say at its end."""

    asked = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Of torch, from whichever finder has it. Programs also ask without importing it, to see whether it is there."""
        if name != "torch" or self.asked:
            return None
        self.asked = True
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = None if find is None else find(name, path, target)
                if spec is not None:
                    self._tell_at_end(spec.loader)
                    return spec
        finally:
            self.asked = False
        return None

    def _tell_at_end(self, loader: Any) -> None:
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _begin()

        try:
            loader.exec_module = exec_module
        except Exception as error:
            _complain(error)


def _begin() -> None:
    """Where fullstep is not installed beside the program, it is taken from where this file lies."""
    source = _HERE
    for _ in range(5):  # hook, command, probe, lab, fullstep
        source = os.path.dirname(source)  # noqa: PTH120
    sys.path.append(source)
    try:
        import_module("fullstep.probing.hooked").begin()
    except Exception as error:
        _complain(error)
    finally:
        if source in sys.path:
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(source)]


def _complain(error: Exception) -> None:
    try:
        with open(os.path.join(os.environ[_FOLDER], f"{os.getpid()}.fault"), "w", encoding="utf-8") as file:  # noqa: PTH118, PTH123
            file.write(f"{type(error).__name__}: {error}"[:500])
    except Exception:
        pass


def _run_the_other() -> None:
    """The sitecustomize that would have been imported without this one, if there is one."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec  # noqa: PLC0415

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get(_FOLDER):
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != _HERE]  # noqa: PTH100
    try:
        _run_the_other()
    finally:
        sys.meta_path.insert(0, _Torch())
