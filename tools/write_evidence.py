"""The table of docs/evidence.md: every key of a probe's record, from the forms that its reader itself uses."""

from __future__ import annotations

from generated_pages import ROOT, between_markers

from fullstep.formats.probe_record.forms import Columns, Field, Form, ListOf, OrNull, Table
from fullstep.formats.probe_record.schema import RECORD

BEGIN, END = "<!-- record:begin -->", "<!-- record:end -->"
_HEAD = "| key | what it may be | what it is |\n|---|---|---|\n"


def page() -> str:
    """The whole page with the table."""
    content = "\n" + _HEAD + "".join(_rows("", RECORD.fields)) + "\n"
    found = between_markers((ROOT / "docs" / "evidence.md").read_text(encoding="utf-8"), BEGIN, END, content)
    if found is None:
        raise SystemExit(f"docs/evidence.md has no {BEGIN} followed by {END}: put both lines where the table shall stand")
    return found


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
