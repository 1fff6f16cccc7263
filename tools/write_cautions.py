"""docs/cautions.md: a paragraph for every code under which fullstep warns."""

from __future__ import annotations

from fullstep.job.cautions import CAUTIONS

_INTRODUCTION = """\
# Cautions

What is allowed, but worth knowing before spending money. `fullstep` prints the code, and `--json` lists it under `warnings`.
F001 to F099 come from reading the worksheet, F100 to F199 from the memory model, F200 to F299 from planning. This page is generated
(`make docs`).
"""


def page() -> str:
    """The whole page in Markdown."""
    parts = [_INTRODUCTION]
    for code, caution in sorted(CAUTIONS.items()):
        parts.append(f"## {code}: {caution.title}\n\n{caution.explanation}\n")
    return "\n".join(parts)
