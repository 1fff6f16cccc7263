"""How much of what a GPU computes is padding, where every row of a batch is filled up to one length."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, lgamma

from fullstep.datasets.lengths import Distribution


def padding_share_in_order(lengths: Sequence[int], micro_batch: int, sequence_tokens: int) -> float:
    """Share of padding where rows are batched in the order of the file and filled up to the longest of their batch.

    Equation:
        ``1 - sum(l_i) / sum(over batches: rows * max(l_i))`` with ``l_i`` cut at the length of a row

    Args:
        lengths: of the rows in their order [tokens]
        micro_batch: rows of a batch; the last one may have fewer
        sequence_tokens: longer rows are cut there

    Valid:
        for a sampler that keeps the order; trainers shuffle unless told otherwise

    >>> padding_share_in_order([1, 3, 4, 4, 2], micro_batch=2, sequence_tokens=4)  # 14 of 6 + 8 + 2
    0.125
    """
    if micro_batch == 1 or not lengths:
        return 0.0
    useful = sum(min(length, sequence_tokens) for length in lengths)
    batches = (lengths[start : start + micro_batch] for start in range(0, len(lengths), micro_batch))
    return 1 - useful / sum(len(batch) * min(max(batch), sequence_tokens) for batch in batches)


def padding_share_shuffled(rows: Distribution, micro_batch: int, sequence_tokens: int) -> float:
    """The share to expect where rows are drawn at random and filled up to the longest of their batch.

    Equation:
        ``1 - mean / E(max)``, ``E(max) = sum(l * (P(l) - P(l-)))`` over the lengths ``l``; ``P(l) = C(k, m) / C(n, m)``: all m rows of a
        batch are among the k of n that are not longer than ``l``

    Args:
        rows: their lengths
        micro_batch: m, rows of a batch; all rows where there are fewer
        sequence_tokens: longer rows are cut there

    Source:
        distribution of the largest of m draws without replacement

    >>> round(padding_share_shuffled(Distribution([2, 4, 4]), micro_batch=2, sequence_tokens=4), 6)  # mean 10/3, E(max) = 4
    0.166667
    """
    cut = rows.cut_at(sequence_tokens)
    if micro_batch == 1 or not cut.tokens:
        return 0.0
    drawn = min(micro_batch, cut.rows)
    largest, below, before = 0.0, 0, 0.0
    for length, count in cut:
        below += count
        share = exp(_log_choices(below, drawn) - _log_choices(cut.rows, drawn)) if below >= drawn else 0.0
        largest += length * (share - before)
        before = share
    return 1 - cut.tokens / cut.rows / largest


def _log_choices(rows: int, drawn: int) -> float:
    """Logarithm of the binomial coefficient."""
    return lgamma(rows + 1) - lgamma(drawn + 1) - lgamma(rows - drawn + 1)


def padding_share_to_sequence(rows: Distribution, sequence_tokens: int) -> float:
    """Share of padding where every row is filled up to one fixed length.

    Equation:
        ``1 - sum(l_i) / (rows * sequence)`` with ``l_i`` cut at the length of a row

    >>> padding_share_to_sequence(Distribution([1, 9]), sequence_tokens=4)  # 5 of 8
    0.375
    """
    cut = rows.cut_at(sequence_tokens)
    return 1 - cut.tokens / (cut.rows * sequence_tokens) if cut.rows else 0.0
