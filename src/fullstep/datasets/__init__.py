"""Data sets on disk: their rows, how many tokens each has, and what padding and packing make of them.

Nothing is downloaded, no code of a data set or tokenizer is run, and nothing is unpickled. What is kept of a file is how long its rows are.
"""

from fullstep.datasets.forms import FORMS, Form, form_of
from fullstep.datasets.lengths import Distribution
from fullstep.datasets.measure import Lengths, measure_lengths
from fullstep.datasets.packing import rows_packed_by_best_fit, rows_packed_by_cutting
from fullstep.datasets.padding import padding_share_in_order, padding_share_shuffled, padding_share_to_sequence
from fullstep.datasets.profile import Cut, DataProfile, Packing, Padding
from fullstep.datasets.tables import open_tables
from fullstep.datasets.tokens import Counter, byte_counter, overhead, tokenizer_counter

__all__ = [
    "FORMS",
    "Counter",
    "Cut",
    "DataProfile",
    "Distribution",
    "Form",
    "Lengths",
    "Packing",
    "Padding",
    "byte_counter",
    "form_of",
    "measure_lengths",
    "open_tables",
    "overhead",
    "padding_share_in_order",
    "padding_share_shuffled",
    "padding_share_to_sequence",
    "rows_packed_by_best_fit",
    "rows_packed_by_cutting",
    "tokenizer_counter",
]
