"""``fullstep data`` by way of ``main``."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fullstep.cli import main


@pytest.fixture
def texts(tmp_path: Path) -> str:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": "word " * number}) + "\n" for number in range(1, 301)))
    return str(path)


def test_text_for_people(texts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", texts, "--sequence-tokens", "256", "--micro-batch", "4"]) == 0
    captured = capsys.readouterr()
    out = " ".join(captured.out.split())
    for words in ("300 rows", "estimated from bytes", f"{texts}:300", "longest of 4 rows", "best fit", "per_byte = 0.254 (0.227-0.426)"):
        assert words in out
    assert not captured.err


def test_the_snippets_are_toml(texts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", texts, "--sequence-tokens", "256"]) == 0
    out = capsys.readouterr().out.split("For a worksheet with packed rows:\n")[1].split("\n\n  Assumed")[0]
    packed, padded = (tomllib.loads(part) for part in out.split("  For a worksheet with padded rows:\n"))
    assert packed["batch"] == {"packed": True, "sequence_tokens": 256} and packed["data"]["tokens"] > 0
    assert padded["data"] == {"examples": 300} and padded["batch"]["mean_sample_tokens"] < 256


def test_json_for_programs(texts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", texts, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 300 and found["evidence"] == "estimated"
    assert sum(entry["rows"] for entry in found["row_tokens"]["histogram"]) == 300
    assert found["worksheet"]["packed"]["data.tokens"] == found["tokens"]["likely"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "required: FILE"),
        (["none.jsonl"], "no such file"),
        (["{texts}", "--sequence-tokens", "0"], "whole number"),
        (["{texts}", "--micro-batch", "1.5"], "whole number"),
        (["{texts}", "--micro-batch", "9" * 5000], "whole number"),
        (["{texts}", "--colum", "text"], "Did you mean --column?"),
        (["{texts}", "--column", "txt"], 'Did you mean "text"?'),
        (["{texts}", "--tokenizer", "none"], "no such file"),
    ],
)
def test_bad_input(arguments: list[str], word: str, texts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", *(argument.format(texts=texts) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert word in captured.err and not captured.out


def test_libraries_are_loaded_only_where_they_are_needed(texts: str) -> None:
    code = (
        f"import sys\nfrom fullstep.cli import main\nassert main(['data', {texts!r}]) == 0\n"
        "assert not {'pyarrow', 'tokenizers', 'transformers', 'numpy', 'torch', 'pickle'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
