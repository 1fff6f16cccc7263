"""Rows of token ids that follow from their number: the same on every rank, and nothing to download."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def rows_of(numbers: Sequence[int], tokens: int, vocabulary: int, seed: int) -> Tensor:
    """Token ids [rows, tokens] of the rows with these numbers.

    >>> first, again = rows_of([7, 8], 4, 100, seed=1), rows_of([8], 4, 100, seed=1)
    >>> first.shape, bool((first[1] == again[0]).all()), bool((first[0] == first[1]).all())
    (torch.Size([2, 4]), True, False)
    """
    generator = torch.Generator()
    rows = []
    for number in numbers:
        generator.manual_seed(seed * 1_000_003 + number)
        rows.append(torch.randint(vocabulary, (tokens,), generator=generator))
    return torch.stack(rows)
