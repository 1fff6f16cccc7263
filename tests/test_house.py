"""The house: floors, folder names, what an estimate may import, and that the examples work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fullstep"
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".toml", ".yaml", ".json"))
HEAVY = ("torch", "numpy", "transformers", "peft", "pandas", "pkg_resources", "importlib.metadata")


def test_imports_go_down_only() -> None:
    command = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([command, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_room_without_a_subject() -> None:
    for path in [*ROOT.glob("src/**/*"), *ROOT.glob("tests/**/*"), *ROOT.glob("tools/*")]:
        assert path.stem not in ("utils", "util", "common", "helpers", "helper", "misc"), path


def test_every_room_has_tests() -> None:
    """A room with code has a folder of tests of its name, or examples in its docstrings."""
    for room in sorted(path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()):
        modules = list(room.rglob("*.py"))
        if all(not re.search(r"^(def|class) ", path.read_text(encoding="utf-8"), flags=re.MULTILINE) for path in modules):
            continue
        tested = list((ROOT / "tests" / room.name).glob("test_*.py"))
        examples = [path for path in modules if ">>> " in path.read_text(encoding="utf-8")]
        errors_are_raised_elsewhere = room.name in ("errors", "evidence")
        assert tested or examples or errors_are_raised_elsewhere, f"tests/{room.name} is missing"


def test_files_can_be_read_at_one_sitting() -> None:
    long = {
        str(path.relative_to(ROOT)): count for path in PACKAGE.rglob("*.py") if (count := len(path.read_text("utf-8").splitlines())) > 300
    }
    assert long == {}


@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_an_answer_needs_no_heavy_import(command: str) -> None:
    code = (
        "import sys\n"
        "from fullstep.cli import main\n"
        f"sys.argv = ['fullstep', '{command}', {str(EXAMPLES[0])!r}, '--json']\n"
        "try:\n    code = main()\nexcept SystemExit as stop:\n    code = stop.code\n"
        "assert code in (0, 3, None), code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_answered(example: Path) -> None:
    """0: fits or tight; 3: does not fit, which is an answer too. Anything else is a fault of the example or of ours."""
    command = Path(sys.executable).parent / "fullstep"
    done = subprocess.run([command, "estimate", example], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert done.stdout.strip()
