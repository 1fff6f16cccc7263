"""One change to a library: what, why, how to check that it still works, and the versions that it was checked with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

TESTED: Mapping[str, tuple[str, ...]] = {"torch": ("2.13", "2.14"), "transformers": ("5.23",), "peft": ("0.21",)}
"""versions (major.minor) that the self-tests of all units passed with"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A named change. ``install`` is called once per process, before any model is built; ``self_test`` raises where it does not hold."""

    name: str
    why: str
    install: Callable[[], None]
    self_test: Callable[[], None]
    imposes_cuda: bool = False
    """it makes a processor's tensors behave as CUDA's would; without it the step is the processor's own"""
    libraries: tuple[str, ...] = field(default=("torch",))


_installed: set[str] = set()


def install_all(units: Iterable[Unit]) -> None:
    """Makes every change that this process does not have yet."""
    for unit in units:
        if unit.name not in _installed:
            unit.install()
            _installed.add(unit.name)


def untested_versions() -> dict[str, str]:
    """Libraries whose installed version is not among those that the units were tested with (``TESTED``), and that version."""
    found = {name: version(name) for name in TESTED}
    return {name: has for name, has in found.items() if ".".join(has.split("+")[0].split(".")[:2]) not in TESTED[name]}
