"""docs/formulas.md: every public function and type of the physics and of the bill with its signature and its docstring.

The sources are read, not imported. Modules come in the order in which a newcomer would read them, functions as they stand in theirs.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "fullstep"
ROOMS = ("physics", "cost")
PRICES = ("offers/owned.py", "offers/provider.py", "offers/currency.py")
"""modules of other rooms that hold formulas"""

_INTRODUCTION = """\
# Formulas

Every formula is one small function; this page is made from their docstrings (`make docs`): first what is kept between
steps, then what a block and the head need, then the walk through the step, then the three counters and the peaks outside it, network
and time, last the bill. Sizes are bytes, times seconds, rates per second, unless a name says otherwise. h is the width of the stream
(hidden), f that of the feed-forward layer, q and k those of queries and of keys, r a rank. What is not physics (framework overhead,
fragmentation, habits of a framework) stands in data files with bounds and evidence, not here.
"""
_READING_ORDER = (
    "estimate", "weights", "quantization", "optimizer", "sharding", "tape", "gradient_buffers", "kernels", "choices", "framework", "layers",
    "adapters", "attention", "block", "head", "build_scene", "scene", "landmarks", "walk", "counters", "allocator", "other_peaks", "host",
    "cautions",
)  # fmt: skip
_SECTIONS = {"Args:": "Parameters", "Returns:": "Returns", "Raises:": "Raises", "Source:": "Source", "Valid:": "Valid"}


def page() -> str:
    """The whole page in Markdown."""
    parts = [_INTRODUCTION]
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py"), key=_reading_order):
            parts += _module(path)
    for name in PRICES:
        parts += _module(PACKAGE / name)
    return "\n".join(parts)


def _reading_order(path: Path) -> tuple[int, str]:
    """Modules that are not in the list come last, by name."""
    return (_READING_ORDER.index(path.stem) if path.stem in _READING_ORDER else len(_READING_ORDER), str(path))


def _module(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")]
    documented = [(node, text) for node in public if (text := ast.get_docstring(node, clean=True))]
    if not documented:
        return
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    yield f"## {name}\n"
    if text := ast.get_docstring(tree, clean=True):
        yield _markdown(text)
    for node, docstring in documented:
        yield f"### {node.name}\n\n```python\n{_signature(node)}\n```\n\n{_markdown(docstring)}"


def _signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
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
