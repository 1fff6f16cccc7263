"""A link: what all-reduce, all-gather, reduce-scatter and sends between real ranks take, by message size."""

from fullstep.lab.link.front.limits import LARGEST_BYTES, notes_of, sizes_of
from fullstep.lab.link.front.measured import Wanted, measure_link

__all__ = ["LARGEST_BYTES", "Wanted", "measure_link", "notes_of", "sizes_of"]
