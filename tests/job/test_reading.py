"""Files in three formats, the lines of faults, and input that means harm: refused early, nothing run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fullstep.errors import InputError
from fullstep.job import read_worksheet, worksheet_from_json
from fullstep.job.raw_bytes import LARGEST_BYTES

TOML = """# a job
schema = 1
[model]
name = "gpt2"

[batch]
micro_batch = 4
"""
YAML = """
schema: 1
model:
  name: gpt2
batch: {micro_batch: 4}
layout:
step:
  compile: yes
"""
JSON = """{
  "schema": 1,
  "model": {"name": "gpt2"},
  "batch": {
    "micro_batch": 4
  }
}"""


def short(value: object) -> str:
    """A name for a test case, however long its text."""
    return value[:20] if isinstance(value, str) else "bytes"


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def message_of(folder: Path, name: str, text: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_worksheet(write(folder, name, text))
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", TOML), ("a.yaml", YAML), ("a.yml", YAML), ("a.json", JSON), ("a", TOML), ("b", YAML), ("c.txt", JSON),
        ("bom.toml", "\ufeff" + TOML),
    ],
)  # fmt: skip
def test_three_formats_by_suffix_or_by_trying(tmp_path: Path, name: str, text: str) -> None:
    worksheet = read_worksheet(write(tmp_path, name, text))
    assert worksheet.stated("model.name") == "gpt2"
    assert worksheet.stated("batch.micro_batch") == 4
    assert worksheet.stated("schema") == 1
    assert worksheet.stated("step.compile") is (True if text == YAML else None)


@pytest.mark.parametrize("text", [TOML, YAML, JSON])
def test_standard_input(text: str) -> None:
    assert read_worksheet("-", stdin=io.BytesIO(text.encode())).stated("batch.micro_batch") == 4
    assert read_worksheet("-", stdin=io.StringIO(text)).origin == "standard input"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.toml", '[evaluation]\nmicro_batch = 1\n[model]\nname = "gpt2"\n\n[batch]\nmicro_batch = 0\n', 7),
        ("b.toml", 'model.name = "gpt2"\nbatch.micro_batch = 0\n', 2),
        ("a.yaml", "evaluation:\n  micro_batch: 1\nmodel:\n  name: gpt2\nbatch:\n  # rows\n  micro_batch: 0\n", 7),
        ("a.json", '{"model": {"name": "gpt2"},\n "batch": {\n"micro_batch": 0}}', 3),
    ],
)
def test_a_fault_names_file_line_and_key(tmp_path: Path, name: str, text: str, line: int) -> None:
    assert message_of(tmp_path, name, text).startswith(f"{name}:{line}: batch.micro_batch: 0; allowed: a whole number from 1")


def test_a_config_path_starts_from_the_worksheets_folder(tmp_path: Path) -> None:
    worksheet = read_worksheet(write(tmp_path, "a.toml", '[model]\nconfig = "models/config.json"\n'))
    assert worksheet.stated("model.config") == str(tmp_path / "models" / "config.json")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("empty.toml", "", "empty"),
        ("blank.yaml", " \n\n", "empty"),
        ("binary.toml", b"\0\1\2", "binary"),
        ("latin.toml", "[model]\nname = 'é'".encode("latin-1"), "byte 16 is not UTF-8"),
        ("list.json", "[1]", "a list of 1 instead of a worksheet"),
        ("text.yaml", "hello", '"hello" instead of a worksheet'),
        ("word", "hello", "a worksheet in TOML, YAML or JSON"),
        ("syntax.toml", "[model]\nname = \n", "syntax.toml:2: not TOML"),
        ("syntax.json", '{"model": \n}', "syntax.json:2: not JSON"),
        ("syntax.yaml", "model:\n  name: [", "syntax.yaml:2: not YAML"),
        ("twice.toml", '[model]\nname = "a"\nname = "b"\n', "twice.toml:3: not TOML"),
        ("twice.json", '{"model": {"name": "a", "name": "b"}}', 'the key "name" stands twice'),
        ("twice.yaml", "model:\n  name: a\n  name: b", 'twice.yaml:3: the key "name" stands twice'),
        ("nan.json", '{"model": {"name": "gpt2"}, "data": {"tokens": NaN}}', "data.tokens: nan"),
        ("inf.yaml", "model: {name: gpt2}\ndata:\n  tokens: .inf", "inf.yaml:3: data.tokens: inf"),
        ("nan.toml", '[model]\nname = "gpt2"\n[data]\ntokens = nan', "nan.toml:4: data.tokens: nan"),
        ("huge.toml", "data.tokens = 1" + "0" * 5000, "thousands of digits"),
        ("huge.json", '{"data": {"tokens": 1' + "0" * 5000 + "}}", "thousands of digits"),
        ("huge.yaml", "model: {name: gpt2}\ndata:\n  tokens: 1" + "0" * 5000, 'data.tokens: "1000'),
        ("date.toml", '[model]\nname = "gpt2"\n[data]\ntokens = 1979-05-27', "a date"),
        ("tag.yaml", 'model: !!python/object/apply:os.system ["touch here"]', "tag.yaml:1: the tag"),
        ("tag2.yaml", "model: !include /etc/passwd", "the tag !include"),
        ("bomb.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nmodel: *b", "anchor or alias"),
        ("merge.yaml", "<<: {model: {name: gpt2}}\nbatch: 1", "unknown section or key"),
        ("two.yaml", "model: {name: gpt2}\n---\nmodel: {name: gpt2}", "a second document"),
        ("key.yaml", "? [a]\n: 1", "a key that is a table or list"),
    ],
    ids=short,
)
def test_what_is_no_worksheet_gets_a_clear_error(tmp_path: Path, name: str, text: str | bytes, says: str) -> None:
    assert says in message_of(tmp_path, name, text)
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("deep.json", "[" * 100_000),
        ("deep.json", '{"a":' * 30_000),
        ("deep.yaml", "[" * 100_000),
        ("deep2.yaml", "".join(f"{' ' * level}a:\n" for level in range(400))),
        ("deep.toml", "a = " + "[" * 100_000),
        ("deep2.toml", "a = " + "{a = " * 30_000),
    ],
    ids=short,
)
def test_deep_nesting_is_refused(tmp_path: Path, name: str, text: str) -> None:
    assert "nested too deeply" in message_of(tmp_path, name, text)


def test_a_toml_key_of_very_many_parts_is_refused(tmp_path: Path) -> None:
    """tomllib takes time with the square of the parts."""
    assert "very many parts" in message_of(tmp_path, "dots.toml", "a" + " . a" * 20_000 + " = 1")
    assert "very many parts" in message_of(tmp_path, "dots2.toml", "a = {a" + ".a" * 20_000 + " = 1}")


def test_very_many_yaml_values_are_refused(tmp_path: Path) -> None:
    assert "very many values" in message_of(tmp_path, "many.yaml", "model: [" + "1," * 40_000 + "]")


def test_a_large_file_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def read(self, size: int = -1) -> bytes:
            assert 0 <= size <= LARGEST_BYTES + 1
            self.taken += size
            return b" " * size

    endless = Endless()
    with pytest.raises(InputError, match="at most 256 KiB"):
        read_worksheet("-", stdin=endless)  # type: ignore[arg-type]
    assert endless.taken <= LARGEST_BYTES + 1
    assert "at most 256 KiB" in message_of(tmp_path, "large.json", b" " * (LARGEST_BYTES + 1))
    with pytest.raises(InputError, match="at most 256 KiB"):
        worksheet_from_json(" " * (LARGEST_BYTES + 1))


@pytest.mark.parametrize(("path", "says"), [("nowhere.toml", "no such file"), (".", "a folder"), ("a\0b", "cannot be read")])
def test_what_is_no_file(tmp_path: Path, path: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_worksheet(f"{tmp_path}/{path}")


def test_yaml_values_are_what_they_look_like(tmp_path: Path) -> None:
    text = (
        "model: {name: gpt2}\nmethod: {dropout: 1e-1, quantization: none, kind: 'lora'}\ngoal: {budget: '10'}\nbatch: {micro_batch: 1_000}"
    )
    worksheet = read_worksheet(write(tmp_path, "a.yaml", text))
    assert worksheet.stated("method.dropout") == 0.1
    assert worksheet.stated("method.quantization") == "none"
    assert worksheet.stated("goal.budget") == "10"
    assert worksheet.stated("batch.micro_batch") == 1000


@pytest.mark.parametrize(("name", "text"), [("job.toml", TOML), ("job.yaml", YAML), ("job.json", JSON), ("job", JSON), ("job", TOML)])
def test_a_mark_of_byte_order_is_no_part_of_a_worksheet(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read_worksheet(tmp_path / name).stated("batch.micro_batch") == 4
    assert worksheet_from_json("\ufeff" + JSON).stated("batch.micro_batch") == 4
