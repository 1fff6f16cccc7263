"""YAML that people read: keys in order, scripts as blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


class Script(str):
    """Text of several lines that stands in a block of its own."""

    __slots__ = ()


class _Writer(yaml.SafeDumper):
    pass


def _script(writer: _Writer, text: Script) -> yaml.ScalarNode:
    return writer.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Writer.add_representer(Script, _script)


def yaml_text(document: Mapping[str, Any]) -> str:
    r"""One document.

    >>> yaml_text({"name": "a: b", "run": Script("set -e\necho\n"), "nodes": 2})
    "name: 'a: b'\nrun: |\n  set -e\n  echo\nnodes: 2\n"
    """
    text: str = yaml.dump(dict(document), Dumper=_Writer, sort_keys=False, allow_unicode=True, width=1000)
    return text
