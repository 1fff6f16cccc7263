"""YAML read event by event: plain values only, nothing referred to, nothing constructed."""

from __future__ import annotations

import re
from typing import Any

import yaml

from fullstep.errors import Fault, InputError
from fullstep.job.parsing import DEEPEST, Parsed
from fullstep.job.worksheet import place

MOST_EVENTS = 20_000
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]{0,39}\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?\Z")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "yes": True, "Yes": True, "on": True, "On": True,
    "false": False, "False": False, "FALSE": False, "no": False, "No": False, "off": False, "Off": False,
}  # fmt: skip


def table_from_yaml(text: str, origin: str) -> Parsed:
    """The value that a YAML text holds, and where its keys of the first two levels stand.

    Raises:
        InputError: a tag, an anchor or alias, a key that stands twice, a second document, deep nesting, or no YAML at all.
    """
    reading = _Reading(origin)
    try:
        for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
            if count > MOST_EVENTS:
                raise reading.fault(event, "very many values", f"at most {MOST_EVENTS:,}")
            reading.take(event)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(Fault(place(origin, line), f"not YAML: {str(error.problem)[:120]}", "a worksheet in YAML")) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(Fault(origin, f"not YAML: {str(error)[:120]}", "a worksheet in YAML")) from None
    lines = reading.lines
    return reading.value, lambda section, name="", /: lines.get((section, name))


class _Reading:
    """The tables and lists that are open, and what is read so far."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.value: Any = None
        self.documents = 0
        self.open: list[tuple[Any, str | None]] = []
        """containers with the key that waits for its value"""
        self.section = ""
        """the key of the first level that was read last"""
        self.lines: dict[tuple[str, str], int] = {}

    def fault(self, event: Any, found: str, allowed: str) -> InputError:
        return InputError(Fault(place(self.origin, event.start_mark.line + 1), found, allowed))

    def take(self, event: Any) -> None:
        """One event of the parser."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self.fault(event, "a second document", "one worksheet in a file")
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.fault(event, "an anchor or alias (& or *)", "values written out")
        elif getattr(event, "tag", None):
            raise self.fault(event, f"the tag {str(event.tag)[:60]}", "plain values without tags")
        elif isinstance(event, yaml.ScalarEvent):
            self._put(event, self._scalar(event))
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            container: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._put(event, container)
            self.open.append((container, None))
            if len(self.open) > DEEPEST:
                raise self.fault(event, "nested too deeply", f"at most {DEEPEST} levels")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self.open.pop()

    def _scalar(self, event: Any) -> Any:
        word: str = event.value
        waits_for_key = bool(self.open) and isinstance(self.open[-1][0], dict) and self.open[-1][1] is None
        if not event.implicit[0] or waits_for_key:
            return word
        if word in _WORDS:
            return _WORDS[word]
        if _INTEGER.match(word):
            return int(word.replace("_", ""))
        if _FLOAT.match(word):
            return float(word)
        if word.lower().lstrip("+-") in (".nan", ".inf"):
            return float(word.replace(".", ""))  # refused by the check of its key
        return word

    def _put(self, event: Any, value: Any) -> None:
        if not self.open:
            self.value = value
            return
        container, key = self.open[-1]
        if isinstance(container, list):
            container.append(value)
        elif key is None:
            if not isinstance(value, str):
                raise self.fault(event, "a key that is a table or list", "keys that are words")
            if value in container:
                raise self.fault(event, f'the key "{value[:60]}" stands twice in one table', "every key once")
            self._note_line(value, event)
            container[value] = None
            self.open[-1] = (container, value)
        else:
            container[key] = value
            self.open[-1] = (container, None)

    def _note_line(self, key: str, event: Any) -> None:
        line = event.start_mark.line + 1
        if len(self.open) == 1:
            self.section = key
            self.lines[(key, "")] = line
        elif len(self.open) == 2:
            self.lines[(self.section, key)] = line
