"""GPUs and nodes that exist."""

from fullstep.hardware.capacity import is_usable_seen, usable_bytes
from fullstep.hardware.card import Card, Link
from fullstep.hardware.catalogue import all_cards, cards_named, find_card
from fullstep.hardware.node import Node, default_link, default_node
from fullstep.hardware.overheads import DeviceOverheads, device_overheads

__all__ = [
    "Card", "DeviceOverheads", "Link", "Node",
    "all_cards", "cards_named", "default_link", "default_node", "device_overheads", "find_card", "is_usable_seen", "usable_bytes",
]  # fmt: skip
