"""Whether the libraries that an experiment runs are there and new enough. None of them is imported to find out."""

from __future__ import annotations

from importlib.util import find_spec

from fullstep.errors import Fault, InputError
from fullstep.job.habits import version_numbers

NEEDED: dict[str, tuple[int, int]] = {"torch": (2, 13), "transformers": (5, 13), "peft": (0, 19)}
"""oldest version of each library; the same as in the extra ``lab``"""
BESIDE = ("accelerate", "bitsandbytes", "torchao")
"""libraries that an experiment takes up where they are there"""


def require_libraries(command: str) -> tuple[tuple[str, str], ...]:
    """(name, version) of each, where the command can run here.

    Args:
        command: for messages, as ``trace``

    Raises:
        InputError: a library is missing or too old; all of them together.
    """
    there, faults = [], []
    for name, oldest in NEEDED.items():
        found = _found(name)
        there.append((name, found or ""))
        if not found or version_numbers(found) < oldest:
            allowed = f"{name} {'.'.join(map(str, oldest))} or newer"
            text = "not installed" if found is None else f"version {found}" if found else "there, but nothing says its version"
            faults.append(Fault(f"fullstep {command}: {name}", text, allowed, "pip install 'fullstep[lab]'"))
    if faults:
        raise InputError(*faults)
    return tuple(there)


def library_versions() -> dict[str, str]:
    """Version of each library that may take part in an experiment and is installed."""
    versions = {name: _found(name) for name in (*NEEDED, *BESIDE)}
    return {name: version for name, version in versions.items() if version is not None}


def _found(name: str) -> str | None:
    """Its version, empty where nothing says it; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:  # a mere folder of that name has no origin
        return None
    try:
        return version(name) or ""
    except PackageNotFoundError:
        return ""
