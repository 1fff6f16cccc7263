"""Tokens by a real tokenizer whose words one can count, and from bytes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from fullstep.datasets import byte_counter, measure_lengths, open_tables, overhead, tokenizer_counter
from fullstep.datasets.tokens import Counter
from fullstep.errors import InputError


def word_tokenizer(path: Path, ends: bool | None = None) -> str:
    """A token for each word; ``ends``: with one at the beginning of a row, and one at its end."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "<s>": 1, "</s>": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if ends is not None:
        template = "<s> $A </s>" if ends else "<s> $A"
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.enable_truncation(2)  # files of trained models have this, and it is not to count
    tokenizer.enable_padding(length=99)
    tokenizer.save(str(path))
    return str(path)


def tokens_of(folder: Path, rows: str, counter: Counter) -> list[int]:
    (folder / "a.jsonl").write_text(rows)
    return list(measure_lengths(open_tables([str(folder / "a.jsonl")]), counter, None).tokens)


TEXTS = '{"text": "one two three"}\n{"text": "one"}\n'
CHAT = '{"messages": [{"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]}\n'


@pytest.mark.parametrize(
    ("ends", "texts", "chat"),
    [(None, [3 + 1, 1 + 1], [3 + 2 * 5]), (False, [1 + 3 + 1, 1 + 1 + 1], [1 + 3 + 2 * 5]), (True, [2 + 3, 2 + 1], [2 + 3 + 2 * 5])],
)
def test_words_by_hand(ends: bool | None, texts: list[int], chat: list[int], tmp_path: Path) -> None:
    """A text ends with one token, which the tokenizer or the trainer adds; a message brings 5."""
    counter = tokenizer_counter(word_tokenizer(tmp_path / "tokenizer.json", ends))
    assert tokens_of(tmp_path, TEXTS, counter) == texts
    assert tokens_of(tmp_path, CHAT, counter) == chat


def test_a_folder_that_has_one(tmp_path: Path) -> None:
    word_tokenizer(tmp_path / "tokenizer.json")
    counter = tokenizer_counter(str(tmp_path))
    assert counter.count(["a b", "", "c"]) == [2, 0, 1]
    assert counter.evidence == "measured" and counter.tokens_per_unit == (1, 1, 1)


def test_halves_of_surrogate_pairs(tmp_path: Path) -> None:
    rows = '{"text": "a \\ud800 b"}\n'
    assert tokens_of(tmp_path, rows, tokenizer_counter(word_tokenizer(tmp_path / "tokenizer.json"))) == [3 + 1]
    assert byte_counter().count(["\ud800", "é", "模"]) == [3, 2, 3]


@pytest.mark.parametrize("content", ["", "{}", "[]", "junk", '{"model": {"type": "BPE"}}', "[" * 100_000])
def test_no_tokenizer(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match="no tokenizer that works"):
        tokenizer_counter(str(tmp_path))


def test_a_folder_without_one(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").touch()
    with pytest.raises(InputError, match=r"no tokenizer.json in this folder.*save_pretrained"):
        tokenizer_counter(str(tmp_path))
    with pytest.raises(InputError, match="there is no such file"):
        tokenizer_counter(str(tmp_path / "none.json"))


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = word_tokenizer(tmp_path / "tokenizer.json")
    monkeypatch.setattr("fullstep.datasets.arrow_tables.find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"tokenizers is not installed.*fullstep\[data\]"):
        tokenizer_counter(path)


def test_from_bytes_with_bounds(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "%s"}\n' % ("x" * 1000))
    found = measure_lengths(open_tables([str(tmp_path / "a.jsonl")]), byte_counter(), None)
    assert found.total.low == pytest.approx(1000 * 0.227 + 1)
    assert list(found.tokens) == [255] and found.total.likely == 255
    assert found.total.high == pytest.approx(1000 * 0.426 + 1)


@given(st.lists(st.text("ab é", min_size=1, max_size=12), min_size=1, max_size=9))
def test_bounds_stand_in_their_order(texts: list[str]) -> None:
    """Also of rows so short that whole tokens are more or less than the bounds of their bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(json.dumps([{"text": text} for text in texts]))
        found = measure_lengths(open_tables([str(path)]), byte_counter(), None)
    assert found.total.low <= found.total.likely == sum(found.tokens) <= found.total.high
    assert min(found.tokens) >= 1


@pytest.mark.parametrize(("characters", "where"), [(3.94, "Llama 3"), (4.4, "Llama 3"), (3.7, "Llama 2"), (3.17, "Llama 2"), (2.35, "50k")])
def test_the_bounds_hold_what_is_published(characters: float, where: str) -> None:
    """English and code, ASCII but for a few signs: a character is a byte."""
    bounds = overhead("tokens_per_byte").value
    assert bounds.low - 0.0005 <= 1 / characters <= bounds.high + 0.0005, where
