"""Which columns are trained on, and what each form of row holds."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.datasets.forms import Content, content_of, form_of
from fullstep.errors import Fault, InputError


def content(**row: Any) -> Content | Fault:
    return content_of(form_of(list(row), None, "x.jsonl"), row, "x.jsonl:7")


USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"text": "abc", "id": 5}, Content(("abc",))),
        ({"content": "abc"}, Content(("abc",))),
        ({"text": None}, Content()),
        ({"prompt": "ab", "completion": "cd"}, Content(("abcd",))),
        ({"prompt": "ab", "response": "cd"}, Content(("abcd",))),
        ({"prompt": [USER], "completion": [ANSWER]}, Content(("Hi", "Hello"), messages=2)),
        ({"prompt": "Hi", "completion": [ANSWER]}, Content(("Hi", "Hello"), messages=2)),
        ({"messages": [USER, ANSWER]}, Content(("Hi", "Hello"), messages=2)),
        ({"messages": {"role": ["user", "assistant"], "content": ["Hi", "Hello"]}}, Content(("Hi", "Hello"), messages=2)),
        ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yo"}]}, Content(("Hi", "Yo"), messages=2)),
        ({"instruction": "Add", "input": "1 2", "output": "3"}, Content(("Add\n1 2", "3"), messages=2)),
        ({"instruction": "Go", "input": "", "output": "ok"}, Content(("Go", "ok"), messages=2)),
        ({"instruction": "Go", "output": "ok", "system": "Be kind"}, Content(("Be kind", "Go", "ok"), messages=3)),
        ({"instruction": "", "input": None, "output": ""}, Content()),
        ({"question": "Why?", "answer": "So."}, Content(("Why?", "So."), messages=2)),
        ({"input_ids": [5, 6, 7], "text": "not this"}, Content(tokens=3)),
        ({"input_ids": range(9)}, Content(tokens=9)),
        ({"input_ids": [5, 6, 0, 0], "attention_mask": [1, 1, 0, 0]}, Content(tokens=2)),
        ({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]},
         Content(("What?",), messages=1, other_parts=1)),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}]},
         Content(('[{"name": "f"}]',), messages=1)),
    ],
)  # fmt: skip
def test_what_is_trained_on(row: dict[str, Any], expected: Content) -> None:
    assert content(**row) == expected


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"text": 5}, "5"),
        ({"text": float("nan")}, "nan"),
        ({"text": ["a", "b"]}, "'a'"),
        ({"text": {"a": 1}}, "a table"),
        ({"messages": [USER, "Hello"]}, "messages[2]"),
        ({"messages": [{"role": "user", "text": "Hi"}]}, "the keys role, text"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[1]"),
        ({"messages": {"role": ["user"], "content": []}}, "a table"),
        ({"input_ids": [1, True]}, "input_ids"),
        ({"input_ids": [1, 2], "attention_mask": [1]}, "attention_mask"),
        ({"input_ids": [1, 2], "attention_mask": [1, 7]}, "attention_mask"),
        ({"instruction": 5, "output": "a"}, "instruction"),
    ],
)
def test_what_cannot_be_trained_on_says_where_it_stands(row: dict[str, Any], word: str) -> None:
    fault = content(**row)
    assert isinstance(fault, Fault)
    assert word in str(fault) and str(fault).startswith("x.jsonl:7: ")


def test_a_nest_that_cannot_be_shown() -> None:
    nest: Any = []
    for _ in range(100_000):
        nest = [nest]
    fault = content(text={"a": nest})
    assert isinstance(fault, Fault)
    while nest:  # taken apart by hand: deep nests are freed by recursion
        nest = nest.pop()


@pytest.mark.parametrize(
    ("columns", "stated", "words"),
    [
        (["mesages", "id"], None, ["mesages, id", 'Did you mean "messages"?', "--column NAME"]),
        (["a", "b"], None, ["a, b", "prompt + completion"]),
        (["body", "id"], "boby", ['no column "boby"', "body, id", 'Did you mean "body"?']),
    ],
)
def test_unknown_columns(columns: list[str], stated: str | None, words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        form_of(columns, stated, "x.jsonl")
    assert all(word in str(error.value) for word in words)


def test_a_stated_column_may_hold_anything_that_is_trained_on() -> None:
    form = form_of(["chosen", "text"], "chosen", "x.jsonl")
    assert form.columns == ("chosen",)
    assert content_of(form, {"chosen": [USER]}, "") == Content(("Hi",), messages=1)
    assert content_of(form, {"chosen": "abc"}, "") == Content(("abc",))


def test_a_row_without_its_column() -> None:
    fault = content_of(form_of(["text"], None, ""), {"txt": "a"}, "x.jsonl:2")
    assert isinstance(fault, Fault) and 'Did you mean "txt"?' in str(fault)
