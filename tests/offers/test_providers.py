"""Terms of providers, and what it costs to take data out."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fullstep.offers.provider import egress_cost_usd, parse_tiers, provider_of, providers


def test_what_decides_most() -> None:
    """Facts of each provider's documentation, as providers.csv names it."""
    assert provider_of("lambda").stopped == "no_stop" and provider_of("lambda").billing_step_seconds == 60
    assert {name for name, found in providers().items() if found.stopped == "billed"} >= {"digitalocean", "vultr", "ovhcloud"}
    assert (provider_of("aws").notice_seconds, provider_of("gcp").notice_seconds, provider_of("azure").notice_seconds) == (120, 30, 30)
    assert {name for name, found in providers().items() if found.longest_hours == 24} == {"selectel", "yandex-cloud", "servercore"}
    runpod = provider_of("runpod")
    assert (runpod.disk_usd_gb_month, runpod.stopped_disk_usd_gb_month) == (Decimal("0.10"), Decimal("0.20"))


def test_unknown_is_none_and_never_zero() -> None:
    unknown = provider_of("nobody")
    assert unknown.name == "nobody" and unknown.egress is None and unknown.billing_step_seconds is None and unknown.access == ""
    for found in providers().values():
        assert found.billing_step_seconds is None or found.billing_step_seconds > 0
        assert found.longest_hours is None or found.longest_hours > 0


def test_tiers_rise_and_the_last_has_no_end() -> None:
    for found in providers().values():
        ends = [tier.up_to_gb for tier in found.egress or ()]
        assert ends == [] or ends[-1] is None
        assert ends[:-1] == sorted(end for end in ends[:-1] if end is not None)


@pytest.mark.parametrize(
    ("gigabytes", "dollars"),
    [("0", "0"), ("1", "0"), ("101", "9.00"), ("10241", "921.60"), ("20241", "1771.60")],
)
def test_egress_by_hand(gigabytes: str, dollars: str) -> None:
    """1 GB free, 10,240 at 0.09 = 921.60, then 0.085: another 10,000 are 850."""
    assert egress_cost_usd(parse_tiers("1:0|10241:0.09|:0.085"), Decimal(gigabytes)) == Decimal(dollars)


def test_free_egress() -> None:
    assert egress_cost_usd(parse_tiers(":0"), Decimal(10**6)) == 0
