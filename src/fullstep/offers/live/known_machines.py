"""What the bundled table knows of a machine beside its price: the form of its cards, its network, its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from fullstep.hardware.catalogue import plain_name
from fullstep.offers.catalogue import bundled_offers
from fullstep.offers.offer import Offer


def completed(offer: Offer) -> Offer:
    """The offer with what it does not say itself, from the same machine of the same provider in the bundled table.

    Prices move, machines of one name do not. One that has other cards than the table says is left as it is.
    """
    known = known_machine(offer.provider, offer.instance)
    if known is None or known.gpus != offer.gpus:
        return offer
    cards = tuple(card for card in offer.cards if card in known.cards)
    if not cards:
        return offer
    return replace(
        offer,
        cards=cards,
        vcpus=_first(offer.vcpus, known.vcpus),
        host_memory_gib=_first(offer.host_memory_gib, known.host_memory_gib),
        disk_gb=_first(offer.disk_gb, known.disk_gb),
        network_gbit_s=_first(offer.network_gbit_s, known.network_gbit_s),
        rdma=known.rdma if offer.rdma is None else offer.rdma,
    )


def known_machine(provider: str, instance: str) -> Offer | None:
    """A row of the bundled table with this machine, whatever its place.

    >>> known_machine("aws", "p5.48xlarge").network_gbit_s
    3200.0
    """
    return _machines().get((provider, plain_name(instance)))


@cache
def _machines() -> Mapping[tuple[str, str], Offer]:
    return {(offer.provider, plain_name(offer.instance)): offer for offer in reversed(bundled_offers())}


def _first(said: float | None, known: float | None) -> float | None:
    return known if said is None else said
