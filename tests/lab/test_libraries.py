"""What is missing or too old is said before anything starts."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from fullstep.errors import InputError
from fullstep.lab import libraries
from fullstep.lab.libraries import NEEDED, library_versions, require_libraries

GOOD = {"torch": "2.14.1+cu130", "transformers": "5.23.0", "peft": "0.19.0rc1"}


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """These libraries are installed, and no others; without a version where it is empty."""

    def there(versions: dict[str, str]) -> None:
        def find(name: str) -> ModuleSpec | None:
            return ModuleSpec(name, None, origin=f"{name}/__init__.py") if name in versions else None

        def version(name: str) -> str:
            if not versions.get(name):
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(libraries, "find_spec", find)
        monkeypatch.setattr(importlib.metadata, "version", version)

    return there


def test_the_extra_asks_for_the_same() -> None:
    root = next(path for path in Path(__file__).parents if (path / "pyproject.toml").exists())
    extra = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["lab"]
    assert {f"{name}>={'.'.join(map(str, oldest))}" for name, oldest in NEEDED.items()} <= set(extra)


def test_new_enough(pretend: Callable[[dict[str, str]], None]) -> None:
    pretend({**GOOD, "bitsandbytes": "0.50.2"})
    require_libraries("trace")
    assert library_versions() == {**GOOD, "bitsandbytes": "0.50.2"}


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        ({}, ["torch: not installed", "transformers: not installed", "peft: not installed"]),
        ({**GOOD, "torch": "2.9.1+cpu"}, ["torch: version 2.9.1+cpu; allowed: torch 2.13 or newer"]),
        ({**GOOD, "transformers": "4.57.3"}, ["transformers: version 4.57.3; allowed: transformers 5.13 or newer"]),
        ({**GOOD, "peft": ""}, ["peft: there, but nothing says its version; allowed: peft 0.19 or newer"]),
        ({"transformers": "5.9", "peft": "0.9"}, ["torch: not installed", "transformers: version 5.9", "peft: version 0.9"]),
    ],
)
def test_missing_or_too_old(versions: dict[str, str], says: list[str], pretend: Callable[[dict[str, str]], None]) -> None:
    pretend(versions)
    with pytest.raises(InputError) as caught:
        require_libraries("trace")
    assert len(caught.value.faults) == len(says)
    for fault, text in zip(caught.value.faults, says, strict=True):
        assert str(fault).startswith(f"fullstep trace: {text}")
        assert str(fault).endswith("pip install 'fullstep[lab]'")


def test_a_folder_that_happens_to_have_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_such_library_of_anyone").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(libraries, "NEEDED", {"no_such_library_of_anyone": (1, 0)})
    with pytest.raises(InputError, match="not installed"):
        require_libraries("trace")
