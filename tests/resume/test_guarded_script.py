"""A script that processes which it spawns would run again is refused before it hangs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from fullstep.resume.guarded_script import require_guarded_script


def _started(monkeypatch: pytest.MonkeyPatch, file: Path | None) -> None:
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_without_a_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("train()\n")
    _started(monkeypatch, script)
    with pytest.raises(ValueError, match="if __name__ == \"__main__\":, or use mode = 'thread'"):
        require_guarded_script()


def test_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text('if __name__ == "__main__":\n    train()\n')
    _started(monkeypatch, script)
    require_guarded_script()


@pytest.mark.parametrize("file", [None, "/usr/bin/something", "/nowhere/train.py"])
def test_where_there_is_nothing_to_look_at(monkeypatch: pytest.MonkeyPatch, file: str | None) -> None:
    _started(monkeypatch, None if file is None else Path(file))
    require_guarded_script()
