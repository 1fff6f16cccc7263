"""JSON lets a key stand twice and takes the last; a worksheet or config that does so is refused."""

from __future__ import annotations

from typing import Any


class KeyTwiceError(ValueError):
    """A key stands twice in one table; the message names it."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The table of these pairs: an ``object_pairs_hook`` of json.

    Raises:
        KeyTwiceError: a key stands twice.

    >>> unique_keys([("a", 1), ("b", 2)])
    {'a': 1, 'b': 2}
    """
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise KeyTwiceError(f'the key "{name[:60]}" stands twice in one table')
            seen.add(name)
    return table
