"""Seconds of a matrix product: how many tiles it has, how they fill the card, and whether memory is the limit."""

from __future__ import annotations

from functools import cache, lru_cache
from math import ceil
from typing import Literal, NamedTuple

from fullstep.physics.timing.rates import Rates, achieved, seconds_at, times
from fullstep.quantities import Bounds

Number = Literal["half", "fp8", "float32"]
_TILES = ((256, 128, ""), (128, 128, "small_tile"), (128, 64, "narrow_tile"), (64, 64, "least_tile"))
_SPLIT_INNER = 1024
"""a product with few tiles is split along its inner side into parts of at least so many elements (split-K)"""


class ProductTime(NamedTuple):
    """Seconds of a product and what bounds it."""

    seconds: Bounds
    bound_by: Literal["compute", "memory"]


def wave_quantization(rows: float, columns: float, copies: float, multiprocessors: int | None, *, tile: tuple[int, int]) -> float:
    """Share of the card's work that is useful when whole tiles run in whole waves.

    ``rows * columns * copies / (waves * multiprocessors * tile)`` with ``waves = ceil(tiles / multiprocessors)``.

    Args:
        rows: of the result
        columns: of the result
        copies: equal products that run together
        multiprocessors: of the card; None: only the tiles' own padding counts
        tile: rows and columns of one tile

    Returns:
        0 to 1

    Source:
        NVIDIA, Matrix Multiplication Background User's Guide, wave quantization

    Valid:
        A100 PCIe, products of 4,096 rows: 0.46, 0.61, 0.72 of 312 TFLOP/s at 1,024, 2,048, 4,096 columns measured (SimuMax), which is
            0.775 times 0.59, 0.79, 0.95

    >>> [round(wave_quantization(4096, columns, 1, 108, tile=(256, 128)), 2) for columns in (1024, 2048, 4096)]
    [0.59, 0.79, 0.95]
    """
    tiles = ceil(rows / tile[0]) * ceil(columns / tile[1]) * copies
    useful = rows * columns * copies / (tiles * tile[0] * tile[1])
    if multiprocessors is None:
        return useful
    return useful * tiles / (ceil(tiles / multiprocessors) * multiprocessors)


@lru_cache(maxsize=8192)
def product_seconds(
    rates: Rates, rows: float, columns: float, inner: float, copies: float = 1.0, *, number: Number = "half", element_bytes: int = 2
) -> ProductTime:
    """``max(FLOP / (rate * tiles' share * inner / (inner + half)), bytes / bandwidth)`` of ``copies`` products.

    The best of four tile sizes is taken, as libraries do; smaller tiles are slower by themselves.

    Args:
        rates: of the card
        rows: of the result
        columns: of the result
        inner: the side that is summed over
        copies: equal products that run together (experts)
        number: format that is multiplied
        element_bytes: of both factors and the result

    Returns:
        seconds with bounds, and whether compute or memory is the limit

    Source:
        the rates' table; Williams et al. 2009 (roofline)

    Valid:
        within 10 % of 100 products measured on A100 PCIe (SimuMax) with sides from 512
    """
    rate = {"half": rates.matrix_flop_per_second, "fp8": rates.fp8_flop_per_second, "float32": rates.float32_flop_per_second}[number]
    if rate is None:
        rate = rates.matrix_flop_per_second
    share = _best_share(rates, (rows, columns, inner), copies)
    half = achieved("half_speed_inner")
    flop = 2 * rows * columns * inner * copies
    compute = Bounds(
        flop * (inner + half.low) / (rate.high * share.high * inner),
        flop * (inner + half.likely) / (rate.likely * share.likely * inner),
        flop * (inner + half.high) / (rate.low * share.low * inner),
    )
    moved = (rows * inner + inner * columns + rows * columns) * element_bytes * copies
    memory = seconds_at(moved, rates.memory_bytes_per_second)
    bound: Literal["compute", "memory"] = "compute" if compute.likely >= memory.likely else "memory"
    ends = (max(compute.low, memory.low), max(compute.likely, memory.likely), max(compute.high, memory.high))
    return ProductTime(Bounds(*ends), bound)


def _best_share(rates: Rates, sides: tuple[float, float, float], copies: float) -> Bounds:
    """Of the tile size that fills the card best, its own speed counted; experts run in one grouped product."""
    found, best = Bounds(0, 0, 0), 0.0
    for high, wide, speed in _tiles():
        filled = _filled(rates, sides, copies, (high, wide))
        if filled * speed.likely > best:
            found, best = times(speed, filled), filled * speed.likely
    return times(found, achieved("grouped_matrix")) if copies > 1 else found


@cache
def _tiles() -> tuple[tuple[int, int, Bounds], ...]:
    return tuple((high, wide, achieved(name) if name else Bounds.exact(1.0)) for high, wide, name in _TILES)


def _filled(rates: Rates, sides: tuple[float, float, float], copies: float, tile: tuple[int, int]) -> float:
    """Share of the card that whole tiles in whole waves use; few tiles are split along the inner side."""
    rows, columns, inner = sides
    splits = 1.0
    if rates.multiprocessors is not None and inner >= 2 * _SPLIT_INNER:
        tiles = ceil(rows / tile[0]) * ceil(columns / tile[1]) * copies
        if tiles < rates.multiprocessors:
            splits = min(inner // _SPLIT_INNER, max(1, rates.multiprocessors // tiles))
    return wave_quantization(rows, columns, copies * splits, rates.multiprocessors, tile=tile)
