"""On what terms machines are rented for one job."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from fullstep.offers.provider import Provider
from fullstep.quantities import Currency


class Rent(NamedTuple):
    """So many equal machines of one provider."""

    per_hour: Decimal
    """of one machine, in ``currency``"""
    machines: int
    currency: Currency
    """of the bill"""
    for_one_usd: Decimal
    """``currency`` for one dollar, in which the prices of storage and egress are known"""
    provider: Provider
    is_own: bool = False
    """a machine of one's own: nothing but its hours is paid"""
    disk_gb: float | None = None
    """that comes with one machine"""
    interrupted_every_seconds: float | None = None
    """M, of all machines together; None: nobody takes them away"""
    wait_seconds: float = 0.0

    @property
    def interruptible(self) -> bool:
        """Somebody may take them away."""
        return self.interrupted_every_seconds is not None
