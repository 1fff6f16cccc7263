"""Pages that are made from the code say what the code says; links and examples lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md"), *(ROOT / "validation").rglob("*.md")])
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "write_docs.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not missing


def test_every_code_of_a_caution_has_its_place_in_the_docs() -> None:
    documented = set(re.findall(r"^## (F\d{3}): ", (ROOT / "docs" / "cautions.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    used = {
        code: path.relative_to(ROOT)
        for path in (ROOT / "src").rglob("*.py")
        for code in re.findall(r"[\"'](F\d{3})[\"']", path.read_text(encoding="utf-8"))
    }
    assert documented
    assert {code: path for code, path in used.items() if code not in documented} == {}


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for record in folder.glob("[0-9]*.md"):
        assert f"({record.name})" in index, record.name


def test_every_word_of_the_answer_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    for word in ("allocated", "reserved", "device", "needed", "usable", "fits", "tight", "does not fit", "instant", "holding", "verdict"):
        assert word in glossary, word


def test_every_word_of_checkpoints_and_drills_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    words = (
        "leg", "manifest", "seal", "control", "digest", "gate", "staging", "upload", "whole", "interval", "disk alone", "frozen base",
        "notice", "uninterrupted", "undecided", "warm-up",
    )  # fmt: skip
    missing = [word for word in words if f"**{word}**" not in re.sub(r"\*\* \([a-z ]+\)", "**", glossary)]
    assert missing == []


def test_files_that_code_and_tables_name_are_there() -> None:
    """A source that says which test repeats a figure, or which page tells more."""
    named = re.compile(r"(?<![\w/.])((?:tests|docs|src|validation|tools|benchmarks|examples)/[\w./-]+\.(?:py|md|csv|toml|jsonl|yaml))\b")
    texts = [path for pattern in ("*.py", "*.csv") for path in (ROOT / "src").rglob(pattern)]
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        for name in named.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    }
    assert found == set()
