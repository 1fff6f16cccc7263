"""Rates and sizes of storage in words: three digits, and the same ones wherever a report says them."""

from __future__ import annotations

from math import ceil, floor, log10

from fullstep.quantities import GB

_MB, _KB = 1e6, 1e3
_LEAST_RATE_SHARE = 0.01
"""of a unit, down to which a rate is said in it"""
_ROUNDING = 1e-6


def rate_words(bytes_per_second: float, *, up: bool = False) -> str:
    """In GB/s, slow ones in MB/s or kB/s.

    >>> rate_words(0.32125e9, up=True), rate_words(0.32125e9), rate_words(14.1e9), rate_words(280e3), rate_words(280)
    ('0.322 GB/s', '0.321 GB/s', '14.1 GB/s', '0.28 MB/s', '0.28 kB/s')

    Args:
        bytes_per_second: [B/s]
        up: never less than that, for what is needed
    """
    unit, name = _unit(bytes_per_second / _LEAST_RATE_SHARE)
    return f"{_three(bytes_per_second / unit, up=up)} {name}/s"


def size_words(size_bytes: float, *, up: bool = False) -> str:
    """In GB, small ones in MB or kB.

    >>> size_words(321.25e9, up=True), size_words(96.38e9), size_words(1.928e12), size_words(82e6)
    ('322 GB', '96.4 GB', '1,928 GB', '82 MB')

    Args:
        size_bytes: [bytes]
        up: never less than that, for what is needed
    """
    unit, name = _unit(size_bytes)
    return f"{_three(size_bytes / unit, up=up)} {name}"


def _unit(amount: float) -> tuple[float, str]:
    return next(((unit, name) for unit, name in ((GB, "GB"), (_MB, "MB")) if amount >= unit), (_KB, "kB"))


def _three(amount: float, *, up: bool) -> str:
    """Three digits that mean something, whole from 100 on.

    >>> _three(2.0, up=True), _three(289.4, up=True), _three(0.32125, up=False)
    ('2', '290', '0.321')
    """
    if up and amount > 0:
        step = 10.0 ** (min(0, floor(log10(amount)) - 2))
        amount = ceil(amount / step - _ROUNDING) * step
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
