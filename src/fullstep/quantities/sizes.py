"""Sizes as people write them: "80GB" is decimal, "80GiB" is binary, a bare "80G" is refused."""

from __future__ import annotations

import re

MIB = 2**20
GIB = 2**30
GB = 10**9
GBIT_BYTES = 1e9 / 8

_UNIT_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": GB,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": 2**40,
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-z]*)\s*\Z")


class SizeError(ValueError):
    """The text is not a size; the message says what is allowed."""


def parse_size_bytes(text: str) -> int:
    """Bytes of a size with its unit.

    >>> parse_size_bytes("80GB"), parse_size_bytes("80 GiB")
    (80000000000, 85899345920)
    >>> parse_size_bytes("80G")
    Traceback (most recent call last):
    fullstep.quantities.sizes.SizeError: "80G" does not say which G: write "80GB" (10^9 bytes) or "80GiB" (2^30 bytes)
    """
    match = _SIZE.match(text[:64])
    if match is None:
        raise SizeError(f'"{text[:40]}" is not a size: write a number and a unit, like "80GB" or "80GiB"')
    number, unit = match.groups()
    if unit in ("K", "M", "G", "T", "k", "g", "m", "t"):
        big = unit.upper()
        power = {"K": 3, "M": 6, "G": 9, "T": 12}[big]
        raise SizeError(
            f'"{text.strip()}" does not say which {big}: write "{number}{big}B" (10^{power} bytes)'
            f' or "{number}{big}iB" (2^{power * 10 // 3} bytes)'
        )
    if unit not in _UNIT_BYTES:
        raise SizeError(f'"{text.strip()}" has no known unit: use one of {", ".join(_UNIT_BYTES)}')
    return round(float(number) * _UNIT_BYTES[unit])


def format_gib(size_bytes: float, digits: int = 1) -> str:
    """A size for people, in GiB.

    >>> format_gib(85899345920)
    '80.0 GiB'
    """
    return f"{size_bytes / GIB:,.{digits}f} GiB"


def format_binary(size_bytes: float) -> str:
    """A size for people in the largest binary unit that it reaches, without decimals where there are none.

    >>> format_binary(4096), format_binary(1.5 * 2**20), format_binary(4092)
    ('4 KiB', '1.5 MiB', '4.0 KiB')
    >>> format_binary(12)
    '12 B'
    """
    for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", 2**10)):
        if size_bytes >= 0.99 * size:
            return f"{size_bytes / size:,.{0 if size_bytes % size == 0 else 1}f} {unit}"
    return f"{size_bytes:,.0f} B"
