"""GPUs and nodes that exist."""

from fullstep.hardware.capacity import is_usable_seen, usable_bytes
from fullstep.hardware.card import Card, Link
from fullstep.hardware.catalogue import all_cards, find_card

__all__ = ["Card", "Link", "all_cards", "find_card", "is_usable_seen", "usable_bytes"]
