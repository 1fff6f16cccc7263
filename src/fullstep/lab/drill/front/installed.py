"""Whether the libraries that a drill runs are there and new enough. None of them is imported to find out."""

from __future__ import annotations

from importlib.util import find_spec

from fullstep.errors import Fault, InputError
from fullstep.job.habits import version_numbers

NEEDED: dict[str, tuple[int, int]] = {"torch": (2, 13), "transformers": (5, 13), "peft": (0, 19)}
"""oldest version of each library; the same as in the extra ``lab``"""


def require_libraries() -> tuple[tuple[str, str], ...]:
    """(name, version) of each, when a drill can run here.

    Raises:
        InputError: a library is missing or too old; all of them together
    """
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    found, faults = [], []
    for name, oldest in NEEDED.items():
        try:
            has = version(name) if find_spec(name) is not None else ""
        except (PackageNotFoundError, ImportError, ValueError):
            has = ""
        found.append((name, has))
        if not has or version_numbers(has) < oldest:
            allowed = f"{name} {'.'.join(map(str, oldest))} or newer"
            text = f"version {has}" if has else "not installed"
            faults.append(Fault(f"fullstep drill: {name}", text, allowed, "pip install 'fullstep[lab]'"))
    if faults:
        raise InputError(*faults)
    return tuple(found)
