"""Units and uncertain numbers: inside fullstep everything is bytes, seconds, FLOP and tokens."""

from fullstep.quantities.bounds import Bounds
from fullstep.quantities.counts import counted
from fullstep.quantities.dtypes import DTYPE_BYTES, DType
from fullstep.quantities.durations import HOUR_SECONDS
from fullstep.quantities.money import CURRENCIES, WIDE, Currency, cents, money
from fullstep.quantities.sizes import GB, GBIT_BYTES, GIB, MIB, SizeError, format_binary, format_gib, parse_size_bytes

__all__ = [
    "CURRENCIES", "DTYPE_BYTES", "GB", "GBIT_BYTES", "GIB", "HOUR_SECONDS", "MIB", "WIDE", "Bounds", "Currency", "DType", "SizeError",
    "cents", "counted", "format_binary", "format_gib", "money", "parse_size_bytes",
]  # fmt: skip
