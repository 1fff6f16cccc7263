"""Reads a config's keys, with the defaults of its class, and collects every fault before it complains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.models.architecture import Architecture, Flag

LARGEST_SIZE = 10**8
LARGEST_LAYERS = 10_000
_LISTS_OF_LAYERS = ("layer_types", "mlp_layer_types", "no_rope_layers", "attention_types")
_MISSING = object()
_SHOWN_CHARACTERS = 60


def shown(value: object) -> str:
    """A value as an error message quotes it: short, whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return "a whole number of more than 40 digits"
    text = repr(value) if not isinstance(value, dict | list) or len(value) <= 20 else f"a {type(value).__name__} of {len(value)} entries"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


class ConfigReader:
    """One config seen through its architecture. Reads never raise; a faulty key reads as 1 and is remembered."""

    def __init__(self, config: Mapping[str, Any], architecture: Architecture) -> None:
        self.config = config
        self.architecture = architecture
        self.faults: list[Fault] = []
        self._doubtful: set[str] = set()
        """places that are faulty, or that a misspelt key was meant for"""
        self._derived: Mapping[str, Any] = {}
        if architecture.derive is not None:
            self._derived = architecture.derive(self)

    def where(self, key: str) -> str:
        own = self.architecture.keys.get(key, key)
        return f"model config: {key if key in self.config and own not in self.config else own}"

    def fault(self, key: str, found: str, allowed: str, remedy: str = "", beside: tuple[str, ...] = ()) -> None:
        """Remembers that ``key`` is wrong; one fault a key is enough.

        Args:
            key: by its usual name
            found: what it says
            allowed: what it may say
            remedy: what to do
            beside: keys that the check hangs on as well; where one of them is faulty, nothing is known of this one
        """
        where = self.where(key)
        beside = (*beside, "num_hidden_layers") if key in _LISTS_OF_LAYERS else beside
        if where in self._doubtful or any(self.where(other) in self._doubtful for other in beside):
            return
        self.faults.append(Fault(where, found, allowed, remedy))
        self._doubtful.add(where)

    def stated(self, key: str) -> bool:
        """Whether the config itself gives the key a value."""
        own = self.architecture.keys.get(key, key)
        return self.config.get(own) is not None or self.config.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value of a key by its usual name: the config's, else what its class derives, else the default of its class."""
        own = self.architecture.keys.get(key, key)
        for name in (own, key):
            value = self.config.get(name, _MISSING)
            if value is not _MISSING and not (value is None and key in self._derived):
                return value
        if key in self._derived:
            return self._derived[key]
        return self.architecture.defaults.get(key)

    def whole(self, key: str, *, low: int = 1, high: int = LARGEST_SIZE) -> int:
        """A whole number in ``low``..``high``."""
        value = self.raw(key)
        if type(value) is int and low <= value <= high:
            return value
        self.fault(key, "missing" if value is None else f"found {shown(value)}", f"a whole number, {low:,} to {high:,}")
        return max(low, 1)

    def optional_whole(self, key: str, *, low: int = 1, high: int = LARGEST_SIZE) -> int | None:
        """The same, or None where the config or its class says nothing."""
        return None if self.raw(key) is None else self.whole(key, low=low, high=high)

    def number(self, key: str, *, low: float, high: float) -> float:
        """A finite number in ``low``..``high``."""
        value = self.raw(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and low <= value <= high:
            return float(value)
        self.fault(key, f"found {shown(value)}", f"a number, {low:g} to {high:g}")
        return low

    def flag(self, key: str) -> bool:
        """true or false; null counts as false."""
        value = self.raw(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.fault(key, f"found {shown(value)}", "true or false")
        return False

    def text(self, key: str) -> str:
        """A word."""
        value = self.raw(key)
        if isinstance(value, str):
            return value[:64]
        self.fault(key, f"found {shown(value)}", "a name in quotes")
        return ""

    def decide(self, flag: Flag) -> bool:
        """The value of a flag of an architecture."""
        if isinstance(flag, bool):
            return flag
        return not self.flag(flag[4:]) if flag.startswith("not ") else self.flag(flag)

    def words(self, key: str, allowed: tuple[str, ...], length: int) -> list[str] | None:
        """A list with one of the ``allowed`` words for each of ``length`` layers; None where the config has none."""
        value = self.raw(key)
        if value is None:
            return None
        if isinstance(value, list) and len(value) == length and all(word in allowed for word in value):
            return value
        found = f"a list of {len(value)}" if isinstance(value, list) else shown(value)
        odd = next((word for word in value if word not in allowed), None) if isinstance(value, list) else None
        found += f" with {shown(odd)}" if odd is not None else ""
        self.fault(key, f"found {found}", f"a list of {length} of {', '.join(allowed)}")
        return None

    def check_spelling(self, keys: tuple[str, ...]) -> None:
        """A key that is nearly the name of a size that the config does not state is taken for a slip, not ignored."""
        unstated = [own for key in keys if not self.stated(key) for own in {key, self.architecture.keys.get(key, key)}]
        if not unstated:
            return
        known = {*self.architecture.defaults, *self.architecture.keys.values(), *keys}
        for name in self.config:
            if name in known or not isinstance(name, str) or len(name) > 64:
                continue
            near = get_close_matches(name, unstated, n=1, cutoff=0.9)
            if near:
                self.faults.append(Fault(f"model config: {name}", "unknown key", near[0], f"Did you mean {near[0]}?"))
                self._doubtful.add(self.where(near[0]))

    def raise_faults(self) -> None:
        if self.faults:
            raise InputError(*self.faults)
