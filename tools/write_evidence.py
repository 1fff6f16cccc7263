"""The tables of docs/evidence.md: every key of a record of a probe or of links, from the forms that its reader itself uses."""

from __future__ import annotations

from generated_pages import ROOT, between_markers

from fullstep.formats.probe_record.forms import Columns, Field, Form, ListOf, OrNull, Table
from fullstep.formats.probe_record.link_schema import LINK_RECORD
from fullstep.formats.probe_record.schema import RECORD

TABLES = {"record": RECORD, "link": LINK_RECORD}
"""by the name of the lines between which each stands"""
_HEAD = "| key | what it may be | what it is |\n|---|---|---|\n"


def page() -> str:
    """The whole page with its tables."""
    text = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        content = "\n" + _HEAD + "".join(_rows("", table.fields)) + "\n"
        found = between_markers(text, begin, end, content)
        if found is None:
            raise SystemExit(f"docs/evidence.md has no {begin} followed by {end}: put both lines where the table shall stand")
        text = found
    return text


def _rows(before: str, fields: tuple[Field, ...]) -> list[str]:
    rows: list[str] = []
    for field in fields:
        name = before + field.name
        rows.append(f"| `{name}` | {field.form.words} | {field.meaning} |\n")
        rows += _inside(name, field.form)
    return rows


def _inside(name: str, form: Form) -> list[str]:
    if isinstance(form, OrNull):
        return _inside(name, form.form)
    if isinstance(form, Table):
        return _rows(f"{name}.", form.fields)
    if isinstance(form, Columns):
        return _rows(f"{name}: ", form.fields)
    return _inside(f"{name}[]", form.form) if isinstance(form, ListOf) else []
