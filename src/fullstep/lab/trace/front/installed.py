"""Whether the libraries that a trace runs are there and new enough. None of them is imported to find out."""

from __future__ import annotations

from importlib.util import find_spec

from fullstep.errors import Fault, InputError
from fullstep.job.habits import version_numbers

NEEDED: dict[str, tuple[int, int]] = {"torch": (2, 13), "transformers": (5, 13), "peft": (0, 19)}
"""oldest version of each library; the same as in the extra ``lab``"""
BESIDE = ("accelerate", "bitsandbytes", "torchao")
"""libraries that a trace takes up where they are there"""


def require_libraries() -> None:
    """Returns when a trace can run here.

    Raises:
        InputError: a library is missing or too old; all of them together.
    """
    faults = []
    for name, oldest in NEEDED.items():
        allowed = f"{name} {'.'.join(map(str, oldest))} or newer"
        found = _found(name)
        if not found or version_numbers(found) < oldest:
            text = "not installed" if found is None else f"version {found}" if found else "there, but nothing says its version"
            faults.append(Fault(f"fullstep trace: {name}", text, allowed, "pip install 'fullstep[lab]'"))
    if faults:
        raise InputError(*faults)


def library_versions() -> dict[str, str]:
    """Version of each library that may take part in a trace and is installed."""
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
