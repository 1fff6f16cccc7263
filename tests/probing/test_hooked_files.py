"""What a watched training loads by itself needs torch and nothing of fullstep: its Python may be older than fullstep needs."""

from __future__ import annotations

import ast
from pathlib import Path

from fullstep.lab.probe.worker import counters


def test_the_counter_imports_nothing_of_fullstep() -> None:
    tree = ast.parse(Path(counters.__file__).read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert modules and not [module for module in modules if module.split(".")[0] == "fullstep"]
