"""Saving in a process of its own runs the training's script once more, as every process that Python spawns does."""

from __future__ import annotations

import sys
from pathlib import Path


def require_guarded_script() -> None:
    """Looks whether the script that was started keeps its training from being run by processes that it spawns.

    Raises:
        ValueError: it nowhere asks for its name: the saving process would train, wait for ranks that never come, and save nothing
    """
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None or not str(file).endswith(".py"):
        return
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if "__name__" not in text:
        why = f"mode = 'process' runs {file} again in the saving process"
        raise ValueError(f"{why}: put what it does under if __name__ == \"__main__\":, or use mode = 'thread'")
