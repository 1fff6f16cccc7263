"""How much of a card's memory torch can use.

The driver keeps a part of the card to itself: ``nvidia-smi`` shows the whole (81,559 MiB on an H100), torch reports less
("GPU 0 has a total capacity of 79.11 GiB"). How much less is not published; it differs by driver version and by card. The
catalogue therefore holds, per card, the smallest total that torch was seen to print, with the place where it was seen.
"""

from __future__ import annotations

from functools import cache

from fullstep.hardware.card import Card
from fullstep.hardware.catalogue import all_cards


def usable_bytes(card_or_total: Card | int) -> int:
    """Bytes that torch can use of a card, or of a total in bytes that the driver reports.

    Seen for this very card: that figure. Otherwise the rule of the nearest: of the cards with both figures known, take
    the one nearest in total size (of several equally near, the one where the driver leaves least), and apply the share
    that it leaves::

        usable = total * usable_seen(nearest) / total(nearest)

    A total larger or smaller than any that was seen takes the nearest one too. Figures are those of Linux; the Windows
    driver lends host memory and reports more.

    >>> from fullstep.hardware import find_card
    >>> round(usable_bytes(find_card("H100-SXM")) / 2**30, 2)
    79.11

    Args:
        card_or_total: a card of the catalogue, or what the driver reports as total [bytes].

    Returns:
        usable bytes, never more than the total.
    """
    if isinstance(card_or_total, Card):
        if card_or_total.usable_bytes_seen is not None:
            return card_or_total.usable_bytes_seen
        return usable_bytes(card_or_total.total_bytes)
    return int(card_or_total * _usable_share(card_or_total))


def is_usable_seen(card: Card) -> bool:
    """Whether ``usable_bytes(card)`` is a published sighting; otherwise it is derived from cards of about the same size."""
    return card.usable_bytes_seen is not None


@cache
def _usable_share(total_bytes: int) -> float:
    _, share = min((abs(total - total_bytes), share) for total, share in _sightings())
    return share


@cache
def _sightings() -> tuple[tuple[int, float], ...]:
    """(driver total [bytes], share of it that torch saw) of every card with both figures."""
    return tuple(
        (card.reported_bytes, card.usable_bytes_seen / card.reported_bytes)
        for card in all_cards()
        if card.reported_bytes is not None and card.usable_bytes_seen is not None and card.usable_bytes_seen < card.reported_bytes
    )
