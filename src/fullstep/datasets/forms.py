"""Which columns of a row are trained on, and what stands in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from fullstep.datasets.arrow_tables import TOKEN_IDS
from fullstep.errors import Fault, InputError


class Content(NamedTuple):
    """What of one row is trained on."""

    pieces: tuple[str, ...] = ()
    """texts that are made into tokens one by one"""
    messages: int = 0
    """each brings the tokens of the chat template"""
    tokens: int = 0
    """of a row that is made into tokens already"""
    other_parts: int = 0
    """images and the like, which are not counted"""

    @property
    def is_empty(self) -> bool:
        """There is nothing to train on."""
        return not (self.tokens or self.other_parts or any(self.pieces))


class Form(NamedTuple):
    """Columns that belong together, and how they are read."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    read: Callable[[Form, Mapping[str, Any]], Content]

    @property
    def columns(self) -> tuple[str, ...]:
        """All that it reads."""
        return self.required + self.optional


_MESSAGE = "a message with role and content, or from and value, which is a text or a list of parts"
_NOTHING = object()


class _NotThisError(Exception):
    """What stands in a column is nothing that can be trained on: column, found, allowed."""


def form_of(columns: Sequence[str], stated: str | None, where: str) -> Form:
    """The first known form whose columns are there, or the stated column alone.

    Args:
        columns: of the file
        stated: a column by name; whether it holds text, messages or token ids is seen row by row
        where: the file, for the message

    Raises:
        InputError: the columns are none that one could train on
    """
    if stated is not None:
        if stated not in columns:
            near = get_close_matches(stated, columns, 1)
            hint = f'Did you mean "{near[0][:60]}"?' if near else ""
            raise InputError(Fault(where, f'no column "{stated[:60]}"', _listed(columns), hint))
        return Form(f'column "{stated}"', (stated,), (), _column)
    for form in FORMS:
        if all(name in columns for name in form.required):
            return form
    near = [match for name in columns for match in get_close_matches(name.lower(), _KNOWN_ALONE, 1, 0.7)]
    hint = f'Did you mean "{near[0]}"? ' if near else ""
    allowed = "; ".join(dict.fromkeys(" + ".join(form.required) for form in FORMS))
    raise InputError(Fault(where, f"the columns {_listed(columns)}", allowed, f"{hint}--column NAME takes one by its name."))


def content_of(form: Form, values: Mapping[str, Any], where: str) -> Content | Fault:
    """What of this row is trained on, or why that cannot be said."""
    for name in form.required:
        if name not in values:
            near = get_close_matches(name, values, 1)
            return Fault(where, f'no "{name}"', f"{' + '.join(form.required)} in every row", f'Did you mean "{near[0]}"?' if near else "")
    try:
        return form.read(form, values)
    except _NotThisError as error:
        column, found, allowed = error.args
        return Fault(f"{where}: {column}", found, allowed)
    except RecursionError:
        return Fault(where, "nested too deeply", "texts, messages or token ids")


def _column(form: Form, values: Mapping[str, Any]) -> Content:
    """One column that holds text, messages or token ids."""
    return _content(form.required[0], values[form.required[0]])


def _content(column: str, value: Any) -> Content:
    if isinstance(value, str):
        return Content((value,))
    if value is None:
        return Content()
    if isinstance(value, range):
        return Content(tokens=len(value))
    if isinstance(value, dict):
        return _of_messages(column, _turned(column, value))
    if not isinstance(value, list):
        raise _NotThisError(column, f"{value!r:.40}", "a text, a list of messages or a list of token ids")
    if all(type(entry) is int for entry in value):
        return Content(tokens=len(value))
    return _of_messages(column, value)


def _token_ids(form: Form, values: Mapping[str, Any]) -> Content:
    """As many as the mask lets through, where there is one: rows may have been padded when they were made."""
    content = _content(form.required[0], values[form.required[0]])
    mask = values.get(form.optional[0])
    if mask is None:
        return content
    if not isinstance(mask, list) or len(mask) != content.tokens or not all(entry in (0, 1) for entry in mask):
        raise _NotThisError(form.optional[0], "not one mark for each token", f"as many 0 and 1 as there are {TOKEN_IDS}")
    return Content(tokens=sum(mask))


def _joined(form: Form, values: Mapping[str, Any]) -> Content:
    """Prompt and completion one behind the other: texts as one text, messages as one conversation."""
    parts = [_content(name, values[name]) for name in form.required]
    if any(part.messages or part.tokens for part in parts):
        return Content(
            tuple(piece for part in parts for piece in part.pieces),
            messages=sum(part.messages or (1 if part.pieces else 0) for part in parts),
            tokens=sum(part.tokens for part in parts),
            other_parts=sum(part.other_parts for part in parts),
        )
    return Content(("".join(piece for part in parts for piece in part.pieces),))


def _instruction(form: Form, values: Mapping[str, Any]) -> Content:
    """Instruction and input as the user's message, the output as the answer, a system text before them where there is one."""
    question, answer = (_text(name, values[name]) for name in form.required)
    more, system = (_text(name, values.get(name)) for name in ("input", "system"))
    if not question and not more and not answer:
        return Content()
    asked = f"{question}\n{more}" if more else question
    pieces = (system, asked, answer) if system else (asked, answer)
    return Content(pieces, messages=len(pieces))


def _text(column: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _NotThisError(column, f"{value!r:.40}", "a text")
    return value


def _turned(column: str, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A list of messages that a file holds as a table of lists."""
    lists = list(table.values())
    if not lists or not all(isinstance(entries, list) and len(entries) == len(lists[0]) for entries in lists):
        raise _NotThisError(column, "a table", "a text, a list of messages or a list of token ids")
    return [dict(zip(table, entries, strict=True)) for entries in zip(*lists, strict=True)]


def _of_messages(column: str, messages: Sequence[Any]) -> Content:
    pieces: list[str] = []
    other = 0
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict):
            raise _NotThisError(f"{column}[{number}]", f"{message!r:.40}", _MESSAGE)
        content = message.get("content", message.get("value", _NOTHING))
        if isinstance(content, str):
            pieces.append(content)
        elif isinstance(content, list):
            texts = [text for part in content if (text := _text_of_part(part)) is not None]
            pieces += texts
            other += len(content) - len(texts)
        elif content is not None and not (content is _NOTHING and message.get("tool_calls")):
            keys = f"the keys {', '.join(map(str, message))[:80] or '(none)'}"
            raise _NotThisError(f"{column}[{number}]", keys if content is _NOTHING else f"{content!r:.40}", _MESSAGE)
        if message.get("tool_calls"):
            pieces.append(json.dumps(message["tool_calls"], ensure_ascii=False, default=str))
    return Content(tuple(pieces), len(messages), 0, other)


def _text_of_part(part: Any) -> str | None:
    """The text of one part of a message; None: it is an image or the like."""
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else None


def _listed(columns: Iterable[str]) -> str:
    names = [name[:60] for name in columns]
    return (", ".join(names[:20]) + (" ..." if len(names) > 20 else "")) or "none"


FORMS: tuple[Form, ...] = (
    Form("token ids", (TOKEN_IDS,), ("attention_mask",), _token_ids),
    Form("messages", ("messages",), (), _column),
    Form("messages", ("conversations",), (), _column),
    Form("messages", ("conversation",), (), _column),
    Form("prompt and completion", ("prompt", "completion"), (), _joined),
    Form("prompt and completion", ("prompt", "response"), (), _joined),
    Form("instruction and output", ("instruction", "output"), ("input", "system"), _instruction),
    Form("instruction and output", ("instruction", "response"), ("input", "system"), _instruction),
    Form("instruction and output", ("question", "answer"), ("system",), _instruction),
    Form("text", ("text",), (), _column),
    Form("text", ("content",), (), _column),
)
"""known forms, the first one that is there is taken: what is made into tokens already before what it was made of"""
_KNOWN_ALONE = [form.required[0] for form in FORMS]
