"""docs/formulas.md: every public function of the physics with its signature and its docstring.

The sources are read, not imported: the order is that of the files and of the functions in them.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

PHYSICS = Path(__file__).resolve().parent.parent / "src" / "fullstep" / "physics"

_INTRODUCTION = """\
# Formulas

Every formula is one small function; this page is made from their docstrings (`make docs`), in the order of the modules. Sizes are bytes,
times seconds, rates per second, unless a name says otherwise. What is not physics (framework overhead, fragmentation, habits of a
framework) stands in data files with bounds and evidence, not here.
"""
_SECTIONS = {"Args:": "Parameters", "Returns:": "Returns", "Raises:": "Raises", "Source:": "Source", "Valid:": "Valid"}


def page() -> str:
    """The whole page in Markdown."""
    parts = [_INTRODUCTION]
    for path in sorted(PHYSICS.rglob("*.py")):
        parts += _module(path)
    return "\n".join(parts)


def _module(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    documented = [(node, text) for node in functions if (text := ast.get_docstring(node, clean=True))]
    if not documented:
        return
    name = ".".join(path.relative_to(PHYSICS.parent).with_suffix("").parts).removesuffix(".__init__")
    yield f"## {name}\n"
    if text := ast.get_docstring(tree, clean=True):
        yield _markdown(text)
    for node, docstring in documented:
        yield f"### {node.name}\n\n```python\n{_signature(node)}\n```\n\n{_markdown(docstring)}"


def _signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def _markdown(docstring: str) -> str:
    """A docstring's literal blocks, examples and sections as Markdown."""
    lines = inspect.cleandoc(docstring).replace("``", "`").splitlines()
    written: list[str] = []
    fenced = False
    for index, line in enumerate(lines):
        text = line.strip()
        if text.startswith(">>>") and not fenced:
            written.append("```pycon")
            fenced = True
        elif fenced and not text:
            written.append("```")
            fenced = False
        if fenced:
            written.append(line)
        elif text in _SECTIONS:
            written += [f"**{_SECTIONS[text]}**", ""]
        elif _is_entry(lines, index):
            written.append(f"- {text}")
        else:
            written.append(line[:-1] if line.endswith("::") else line)
    return "\n".join([*written, *(["```"] if fenced else [])]) + "\n"


def _is_entry(lines: list[str], index: int) -> bool:
    """Whether a line is the first line of an entry of a section: indented by four right below its head or another entry."""
    if not lines[index].startswith("    ") or lines[index].startswith("     "):
        return False
    head = next((line for line in reversed(lines[:index]) if line and not line.startswith(" ")), "")
    return head.strip() in _SECTIONS
