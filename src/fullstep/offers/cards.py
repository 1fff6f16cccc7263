"""Which card of the catalogue an offer means, by the words of whoever offers it."""

from __future__ import annotations

from functools import cache

from fullstep.hardware import Card, cards_named
from fullstep.quantities import GB, GIB

_NEAR = 0.07
"""sellers round the memory of a card, or quote its driver: 93.6 to 96 GB, 179 to 192; what differs by more is another card"""
_SAME = 0.01
"""so near, a size tells one card from another that is near as well: 94 GB from 96"""
_JOINED = frozenset(("sxm", "nvlink", "oam"))
"""forms that say that the cards of a node are joined all to all"""


@cache
def offered_cards(gpu: str, form: str = "", memory_gb: float | None = None) -> tuple[Card, ...]:
    """Cards that an offer may mean: by name, then by form and by memory as far as they are said.

    Args:
        gpu: name of the card without its form, like "H100"
        form: SXM, PCIe, NVL, OAM, NVLink, or an edition; "" where the seller does not say
        memory_gb: of one card, as sold or as its driver reports; None: not said

    Returns:
        one where the words suffice; several where the form is not said; none: no such card is known

    >>> [card.key for card in offered_cards("H100", "SXM", 80)], [card.key for card in offered_cards("H200", "", 141)]
    (['H100-SXM'], ['H200-SXM', 'H200-NVL'])
    """
    exact = cards_named(f"{gpu}-{form}") if form else ()
    named = exact or tuple(card for card in cards_named(gpu) if _has_form(card, form))
    if memory_gb is None:
        return tuple(named)
    same = tuple(card for card in named if _has_memory(card, memory_gb, _SAME))
    return same or tuple(card for card in named if _has_memory(card, memory_gb, _NEAR))


def _has_form(card: Card, form: str) -> bool:
    """Whether a card is sold in that form."""
    if not form:
        return True
    return (card.link == "nvswitch") is (form.lower() in _JOINED) and form.lower() in (*_JOINED, "pcie")


def _has_memory(card: Card, memory_gb: float, share: float) -> bool:
    sizes = (card.marketing_bytes / GB, card.total_bytes / GIB)
    return any(abs(size - memory_gb) <= share * size for size in sizes)
