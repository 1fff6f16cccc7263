"""docs/worksheet.md: every key of the worksheet, from the table that the reader itself uses."""

from __future__ import annotations

from fullstep.job.keys import KEYS, SECTIONS, Key, allowed_text

_INTRODUCTION = """\
# The worksheet

TOML, YAML or JSON with the same keys; only a model is required. What is left out takes the default, and every default that was used
is listed in the answer under `assumptions`. Unknown keys are refused with the nearest known one. Sizes are numbers in the unit of the
key's name, or text with a unit: `"80GB"` is 80 * 10^9 bytes, `"80GiB"` is 80 * 2^30, and a bare `"80G"` is refused.

Any key can be a flag instead, over a file or without one: `--set layout.strategy=ddp`, and for the usual ones `--gpus 8`.
`fullstep init` writes a blank worksheet with these explanations. This page is generated (`make docs`).
"""
_HEAD = "| key | what | allowed | default |\n|---|---|---|---|\n"


def page() -> str:
    """The whole page in Markdown."""
    parts = [_INTRODUCTION, "## Top level\n\n" + _table("")]
    parts += [f"## `[{section}]` {text}\n\n" + _table(section) for section, text in SECTIONS.items()]
    return "\n".join(parts)


def _table(section: str) -> str:
    return _HEAD + "".join(_row(key) for key in KEYS if key.section == section)


def _row(key: Key) -> str:
    cells = (f"`{key.name}`", key.explanation, str(allowed_text(key)), key.default)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
