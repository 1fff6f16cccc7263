"""How far two states are apart where some of their values are no numbers."""

from __future__ import annotations

import math

import pytest
import torch

from fullstep.lab.drill.worker.differences import Largest, largest_differences

NAN, INF = float("nan"), float("inf")


def share(one: list[float], other: list[float], dtype: torch.dtype = torch.float32) -> float:
    found = largest_differences({"parameters w": torch.tensor(one, dtype=dtype)}, {"parameters w": torch.tensor(other, dtype=dtype)})
    return found["parameters"].share


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, NAN], [1.0, 2.0], math.inf),
        ([1.0, 2.0], [1.0, NAN], math.inf),
        ([1.0, NAN], [1.0, NAN], 0.0),
        ([1.0, NAN], [2.0, NAN], 0.5),
        ([NAN], [0.0], math.inf),
        ([INF], [INF], 0.0),
        ([INF], [-INF], math.inf),
        ([INF, 1.0], [3e4, 1.0], math.inf),
        ([0.0], [0.0], 0.0),
    ],
)
def test_what_is_no_number(one: list[float], other: list[float], expected: float, dtype: torch.dtype) -> None:
    """Against a number infinitely far; against the same bits not at all."""
    assert share(one, other, dtype) == expected


def test_other_bits_of_no_number_are_a_difference() -> None:
    """A digest would tell them apart."""
    quiet, other = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001))
    assert largest_differences({"exp_avg w": quiet}, {"exp_avg w": other}) == {"exp_avg": Largest(math.inf, "w")}


def test_the_kind_s_worst_tensor_is_named() -> None:
    one = {"parameters a": torch.tensor([1.0]), "parameters b": torch.tensor([NAN]), "parameters c": torch.tensor([2.0])}
    other = {"parameters a": torch.tensor([2.0]), "parameters b": torch.tensor([1.0]), "parameters c": torch.tensor([2.0])}
    assert largest_differences(one, other) == {"parameters": Largest(math.inf, "b")}
