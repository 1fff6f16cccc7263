"""What a card achieves of its data sheet, from ``data/achieved.csv``, where each share has its bounds, evidence and source."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fullstep.hardware import Card, Node
from fullstep.quantities import Bounds

_DATA = Path(__file__).parent / "data"
_LARGEST_NARROW_HEAD = 64
_LARGEST_USUAL_HEAD = 160


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rates:
    """Achieved rates of one card; low is slow, high is fast. FLOP/s and bytes/s. Compared by identity, which makes it a cheap cache key."""

    matrix_flop_per_second: Bounds
    """16-bit products with long sides, before wave quantisation"""
    fp8_flop_per_second: Bounds | None
    float32_flop_per_second: Bounds
    peak_flop_per_second: float
    """of 16 bits, by the data sheet: what shares of attention kernels refer to"""
    memory_bytes_per_second: Bounds
    dequantization_bytes_per_second: Bounds
    pcie_bytes_per_second: Bounds | None
    """one direction"""
    multiprocessors: int | None
    where: tuple[str, ...]
    """names under which the table may have a row of this card, from narrow to wide"""


class Achieved(NamedTuple):
    """One row of the table."""

    value: Bounds
    unit: str
    evidence: str
    source: str


def times(left: Bounds, right: Bounds | float) -> Bounds:
    """A product of two uncertain factors, end by end.

    >>> times(Bounds(1, 2, 3), Bounds(0.5, 1, 2))
    Bounds(low=0.5, likely=2, high=6)
    """
    if not isinstance(right, Bounds):
        right = Bounds.exact(right)
    return Bounds(left.low * right.low, left.likely * right.likely, left.high * right.high)


def seconds_at(amount: float, rate: Bounds) -> Bounds:
    """Time of an amount at an uncertain rate: the low end belongs to the fast rate.

    >>> seconds_at(8, Bounds(1, 2, 4))
    Bounds(low=2.0, likely=4.0, high=8.0)
    """
    return Bounds(amount / rate.high, amount / rate.likely, amount / rate.low)


def achieved(what: str, where: tuple[str, ...] = ()) -> Bounds:
    """A row of the table for the first of these names that has one, else the general row.

    >>> achieved("float32_rate", ("H100-SXM", "9.0")).likely
    0.0677
    """
    rows = achieved_rows()
    for name in where:
        if (what, name) in rows:
            return rows[what, name].value
    return rows[what, ""].value


@cache
def card_rates(card: Card) -> Rates | None:
    """Achieved rates of a card; None where its data sheet has no 16-bit rate or no bandwidth.

    Products of 16 bits: the best that anybody measured (``Card.achieved_bf16_flop_per_second``, else a row of the table) times the share
    of it that typical shapes reach for hours.

    >>> from fullstep.hardware import find_card
    >>> rates = card_rates(find_card("A100-PCIE-80GB"))
    >>> round(rates.matrix_flop_per_second.likely / 1e12, 1)  # 0.95 of 252.9
    240.3
    """
    peak = card.bf16_flop_per_second or card.fp16_flop_per_second
    if peak is None or card.memory_bytes_per_second is None:
        return None
    where = (card.key, card.compute_capability, "10.0") if card.compute_capability == "10.3" else (card.key, card.compute_capability)
    best = Bounds.exact(card.achieved_bf16_flop_per_second) if card.achieved_bf16_flop_per_second else times(
        achieved("best_matrix", where), peak
    )  # fmt: skip
    matrix = times(best, achieved("typical_matrix", where))
    lanes = _pcie_bytes_per_second(card)
    return Rates(
        matrix_flop_per_second=matrix,
        fp8_flop_per_second=_fp8_rate(card, matrix, peak, where),
        float32_flop_per_second=times(achieved("float32_rate", where), peak),
        peak_flop_per_second=peak,
        memory_bytes_per_second=times(achieved("memory", where), card.memory_bytes_per_second),
        dequantization_bytes_per_second=times(achieved("dequantization", where), card.memory_bytes_per_second),
        pcie_bytes_per_second=times(achieved("pcie"), lanes) if lanes else None,
        multiprocessors=_multiprocessors().get(card.key),
        where=where,
    )


def attention_rate(rates: Rates, *, cudnn: bool, backward: bool, sequence_tokens: float, head_dim: int, pairs: float) -> Bounds:
    """Rate of a fused attention kernel over the FLOP below the diagonal [FLOP/s]: ``peak * share * s / (s + half) * w / (w + tail)``.

    A row of few tokens keeps the kernel busy with whole tiles on the diagonal and with starting up: at ``half`` tokens it has half its
    speed. A tile of 128 queries (256 in cuDNN's kernel for Blackwell) runs on one multiprocessor, and the last tiles run alone: ``w`` is
    the work of each multiprocessor in tiles of the longest kind, ``tail`` how many of those it waits for at the end.

    Example: 8 heads of 4,096 tokens on B200: 16 tiles a head, half as long as the longest: ``w = 8 * 16 / 2 / 148`` = 0.43; 0.40 of the
    speed of many heads, where 0.31 was measured.

    Args:
        rates: of the card
        cudnn: cuDNN's or FlashAttention-3's kernels (Megatron with Transformer Engine) instead of FlashAttention-2 (torch, flash-attn)
        backward: its backward pass
        sequence_tokens: length of a row, or of the window
        head_dim: width of a head
        pairs: of queries with keys, over all rows and heads on this GPU

    Returns:
        [FLOP/s]

    Source:
        Shah et al. 2024 (FlashAttention-3), figures 5 and 6: its table for FlashAttention-2, causal, head 128 is met within 5 %;
        tiles: FlashAttention-2, section 3.2 (a thread block per tile of a head)

    Valid:
        from 16 heads of 4,096 tokens on within 16 % of what was measured on A100 and B200 (SimuMax, 8 to 128 heads); below, B200 is up to
        30 % slower than the likely rate
    """
    has_own = any(("cudnn_forward", name) in achieved_rows() for name in rates.where)
    kernel = "cudnn" if cudnn and has_own else "flash"
    share = achieved(f"{kernel}_{'backward' if backward else 'forward'}", rates.where)
    half = achieved(f"half_speed_{kernel}")
    length = Bounds(*(sequence_tokens / (sequence_tokens + tokens) for tokens in (half.high, half.likely, half.low)))
    wide = kernel == "cudnn" and not backward and "10.0" in rates.where
    filled = _filled_by_tiles(rates, pairs / sequence_tokens, tile_tokens=256 if wide else 128, backward=backward)
    found = times(times(times(share, length), filled), rates.peak_flop_per_second)
    if head_dim <= _LARGEST_NARROW_HEAD:
        return times(found, achieved("head_64"))
    return times(found, achieved("head_256")) if head_dim > _LARGEST_USUAL_HEAD else found


def _filled_by_tiles(rates: Rates, queries: float, *, tile_tokens: int, backward: bool) -> Bounds:
    """Share of the time in which multiprocessors have tiles to work on; ``queries`` as if each attended to the longest row."""
    if rates.multiprocessors is None:
        return Bounds.exact(1.0)
    waves = queries / (tile_tokens * rates.multiprocessors)
    tail = achieved("attention_tail", ("backward" if backward else "forward",))
    return Bounds(*(waves / (waves + tiles) for tiles in (tail.high, tail.likely, tail.low)))


def _fp8_rate(card: Card, matrix: Bounds, peak: float, where: tuple[str, ...]) -> Bounds | None:
    """Where nobody measured it, the share of the data sheet that 16 bits reach; twice the 16-bit rate where the sheet has no 8-bit one."""
    if not card.trains_fp8:
        return None
    sheet = card.fp8_flop_per_second or 2 * peak
    measured = next((rows for name in where if (rows := achieved_rows().get(("best_fp8", name)))), None)
    return times(measured.value, sheet) if measured else times(matrix, sheet / peak)


def _pcie_bytes_per_second(card: Card) -> float | None:
    both = Node(card=card, gpus=1, link="pcie_p2p").link_bytes_per_second_bidirectional
    return both / 2 if both else None


@cache
def achieved_rows() -> dict[tuple[str, str], Achieved]:
    """The whole table by (what, where)."""
    with (_DATA / "achieved.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["what"], row["where"]): Achieved(
                Bounds(float(row["low"]), float(row["likely"]), float(row["high"])), row["unit"], row["evidence"], row["source"]
            )
            for row in csv.DictReader(file)
        }


@cache
def _multiprocessors() -> dict[str, int]:
    with (_DATA / "processors.csv").open(encoding="utf-8", newline="") as file:
        return {row["card"]: int(row["multiprocessors"]) for row in csv.DictReader(file)}
