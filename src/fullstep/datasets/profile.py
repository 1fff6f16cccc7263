"""What is said of a data set: its lengths, and what a length of rows makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fullstep.evidence import Assumption, Evidence
from fullstep.quantities import Bounds


class Cut(NamedTuple):
    """What does not fit into a row of ``sequence_tokens``."""

    rows: int
    """that are longer"""
    tokens: int
    """lost with them, where rows are not packed by cutting"""


class Padding(NamedTuple):
    """Share of what a GPU computes that is padding, from 0 to 1."""

    in_order_share: float
    """rows in the order of the file, filled up to the longest of their micro-batch"""
    shuffled_share: float
    """the same to expect of rows in random order"""
    to_sequence_share: float
    """every row filled up to ``sequence_tokens``"""
    mean_row_tokens: float
    """of a row as the GPU sees it on average, shuffled and filled up to the longest of its micro-batch"""


class Packing(NamedTuple):
    """Rows of ``sequence_tokens`` that the data set makes, and the share of steps they save beside one row each."""

    cut_rows: int
    """put one behind the other and cut: nothing is lost"""
    whole_rows: int
    """best-fit decreasing: no row is divided, longer ones are cut off"""
    whole_filled_share: float
    """of the whole rows' places that hold a token"""
    cut_saves_share: float
    whole_saves_share: float
    """of the steps, at the same number of rows a step"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataProfile:
    """A data set in numbers [tokens, unless a name says otherwise]. Empty rows are left out of all but ``empty_rows``."""

    files: tuple[str, ...]
    forms: tuple[str, ...]
    rows: int
    empty_rows: int
    other_parts: int
    """images and the like, whose tokens are not counted"""
    evidence: Evidence
    """measured: counted; estimated: from bytes"""
    counted: str
    """how, in words"""
    tokens: Bounds
    mean: float
    median: int
    p90: int
    p99: int
    longest: int
    longest_at: str
    """file and line, or row, where it begins"""
    histogram: tuple[tuple[int, int], ...]
    """(up to so many tokens, rows)"""
    sequence_tokens: int
    micro_batch: int
    cut: Cut
    padding: Padding
    packing: Packing
    packed_keys: dict[str, object]
    """keys of a worksheet for packed rows, by their full names"""
    padded_keys: dict[str, object]
    """the same for padded rows"""
    assumptions: tuple[Assumption, ...]
