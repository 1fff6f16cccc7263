"""A GPU as its data sheet and its driver describe it. None means: not known, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Link = Literal["nvswitch", "nvlink_bridge", "pcie_p2p", "pcie_host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU. Rates are dense peak rates (no sparsity), per second; link is both directions together."""

    key: str
    vendor: str
    architecture: str
    compute_capability: str
    marketing_bytes: int
    reported_bytes: int | None
    """what the driver reports as total; None where nobody published it"""
    memory_bytes_per_second: float | None
    bf16_flop_per_second: float | None
    fp16_flop_per_second: float | None
    fp8_flop_per_second: float | None
    tf32_flop_per_second: float | None
    achieved_bf16_flop_per_second: float | None
    link: Link
    """what joins the GPUs of one node in the form in which this card is usually sold"""
    link_bytes_per_second_bidirectional: float | None
    """of NVLink, xGMI or a bridge; None where PCIe is the only way"""
    pcie_generation: int | None
    power_watt: int | None
    trains_bf16: bool
    trains_fp8: bool
    has_flash_attention: bool
    sources: str
    """codes of the sources table, separated by ``;``"""
    confidence: Literal["high", "medium", "low"]
    notes: str = ""
    usable_bytes_seen: int | None = None
    """the smallest total capacity that torch was seen to print for this card; None: no sighting (see ``usable_bytes``)"""
    usable_source: str = ""
    """where that was seen"""
    form_factor: str = ""
    bridge_gpus: int | None = None
    """how many cards one bridge joins; None: no bridge exists"""
    pcie_peer: bool | None = None
    """the stock driver lets two of these cards copy over PCIe without passing host memory"""
    pcie_lanes: int = 16
    seen: str = ""
    """the day on which the figures were collected"""

    @property
    def total_bytes(self) -> int:
        """What the driver reports; where nobody published it, the marketing size read as 10^9 bytes (the cautious reading),
        but never less than what torch was seen to have."""
        if self.reported_bytes is not None:
            return self.reported_bytes
        return max(self.marketing_bytes, self.usable_bytes_seen or 0)
