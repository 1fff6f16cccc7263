"""Checks every key and value of a nested mapping and reports all that is wrong at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.job.keys import BY_DOTTED, BY_SECTION, SECTIONS, allowed_text
from fullstep.job.refusal import Refused, describe, did_you_mean, nearest
from fullstep.job.values import CHECKS, TIMES
from fullstep.job.worksheet import Lines, Worksheet, no_lines, place

MOST_FAULTS = 40
"""more than these are not listed: the first ones say enough"""


def worksheet_from_mapping(mapping: object, origin: str = "worksheet", lines: Lines = no_lines) -> Worksheet:
    """The worksheet in a nested mapping, every value in its canonical form.

    Args:
        mapping: section -> key -> value, as json or tomllib give it.
        origin: what messages call it.
        lines: finds the line of a key, where there is a text.

    Raises:
        InputError: all that is wrong, together.

    >>> worksheet_from_mapping({"model": {"name": "gpt2"}, "precision": {"compute": "bf16"}}).stated("precision.compute")
    'bfloat16'
    """
    if not isinstance(mapping, Mapping):
        raise InputError(Fault(origin, f"{describe(mapping)} instead of a worksheet", "a table with the section model"))
    validation = _Validation(origin, lines)
    values = validation.values
    for section, entries in mapping.items():
        if section in SECTIONS:
            validation.read_section(section, entries)
        else:
            validation.read_top(section, entries)
        if len(validation.faults) > MOST_FAULTS:
            break
    machine = values.get("machine")
    if machine:
        validation.split_count(machine)
    model = values.get("model")
    if not (model and ("name" in model or "config" in model)) and not validation.doubts_model():
        validation.fault("model", "no model", "model.name or model.config", 'For example model.name = "meta-llama/Llama-3.1-8B".')
    worksheet = Worksheet(values, origin, lines)
    if validation.faults:
        from fullstep.job.complete import further_faults  # noqa: PLC0415 - above this module, and for what is wrong only

        raise_all(validation.faults + further_faults(worksheet, frozenset(validation.faulty)), origin)
    return worksheet


def raise_all(faults: list[Fault], origin: str) -> None:
    """Raises one error with all the faults (the first ones of very many); returns when there are none."""
    if len(faults) > MOST_FAULTS:
        faults = [*faults[:MOST_FAULTS], Fault(origin, "more faults after these", "", "Mend these first.")]
    if faults:
        raise InputError(*faults)


class _Validation:
    """What was read of one worksheet so far, and what is wrong with it."""

    __slots__ = ("faults", "faulty", "lines", "origin", "values")

    def __init__(self, origin: str, lines: Lines) -> None:
        self.origin = origin
        self.lines = lines
        self.values: dict[str, Any] = {}
        self.faults: list[Fault] = []
        self.faulty: set[str] = set()
        """keys and sections that could not be read, or that a misspelt one was meant for"""

    def doubts_model(self) -> bool:
        """Something of the section model could not be read."""
        return any(key.partition(".")[0] == "model" for key in self.faulty)

    def fault(self, dotted: str, found: str, allowed: str, remedy: str = "") -> None:
        section, _, name = dotted.rpartition(".")
        line = self.lines(section, name) if section else self.lines(name)
        self.faults.append(Fault(place(self.origin, line, dotted[:90]), found, allowed, remedy))
        self.faulty.add(dotted)

    def read_section(self, section: str, entries: object) -> None:
        """One section; an empty one (null in YAML) counts as left out."""
        if entries is None:
            return
        if not isinstance(entries, Mapping):
            self.fault(section, describe(entries), f"a table with the keys {', '.join(BY_SECTION[section])}")
            return
        checks = CHECKS[section]
        checked: dict[str, Any] = {}
        for name, value in entries.items():
            check = checks.get(name) if type(name) is str else None
            if check is None:
                self._unknown_key(section, name)
            else:
                try:
                    checked[name] = check(value)
                except Refused as refused:
                    self.fault(f"{section}.{name}", refused.found, refused.allowed, refused.remedy)
            if len(self.faults) > MOST_FAULTS:
                break
        if checked:
            self.values[section] = checked

    def _unknown_key(self, section: str, name: object) -> None:
        word = name[:60] if isinstance(name, str) else describe(name)
        known = list(BY_SECTION[section])
        elsewhere = [key.dotted for key in BY_DOTTED.values() if key.name == word]
        remedy = f"There is {' and '.join(elsewhere)}." if elsewhere else did_you_mean(word, known)
        self.faulty.update(elsewhere or [f"{section}.{nearest(word, known)}"])
        self.fault(f"{section}.{word}", "unknown key", ", ".join(known), remedy)

    def read_top(self, name: object, value: object) -> None:
        """What stands outside the sections: only ``schema`` may."""
        if name == "schema":
            try:
                self.values["schema"] = CHECKS[""]["schema"](value)
            except Refused as refused:
                remedy = "This version of fullstep reads schema 1 only: write 1 or leave the key out."
                self.fault("schema", refused.found, allowed_text(BY_DOTTED["schema"]), remedy)
            return
        word = name[:60] if isinstance(name, str) else describe(name)
        owners = [key.dotted for key in BY_DOTTED.values() if word in (key.name, key.dotted)]
        remedy = f"It belongs in a section: {' or '.join(owners)}." if owners else did_you_mean(word, ["schema", *SECTIONS])
        self.faulty.update(owners or [nearest(word, list(SECTIONS)) or word])
        self.faults.append(
            Fault(place(self.origin, self.lines(word), word), "unknown section or key", f"schema, {', '.join(SECTIONS)}", remedy)
        )

    def split_count(self, machine: dict[str, Any]) -> None:
        """``8xH100-SXM`` under gpu or gpus says both; it must not contradict the other key."""
        for key, other in (("gpus", "gpu"), ("gpu", "gpus")):
            text = machine.get(key)
            match = TIMES.match(text) if type(text) is str else None
            if match is None or not match[2]:
                continue
            said = {"gpus": int(match[1]), "gpu": match[2].strip()}
            stated = machine.get(other)
            if type(stated) is type(said[other]) and stated != said[other]:
                found = f"{describe(text)}, but machine.{other} is {describe(stated)}"
                self._fault_of_count(machine, key, found, "both alike, or one of the two")
            elif not 1 <= int(match[1]) <= BY_DOTTED["machine.gpus"].high:
                self._fault_of_count(machine, key, describe(text), allowed_text(BY_DOTTED["machine.gpus"]))
            else:
                machine.update(said)

    def _fault_of_count(self, machine: dict[str, Any], key: str, found: str, allowed: str) -> None:
        """Neither key of the two says anything then."""
        self.fault(f"machine.{key}", found, allowed)
        for name in ("gpu", "gpus"):
            machine.pop(name, None)
            self.faulty.add(f"machine.{name}")
