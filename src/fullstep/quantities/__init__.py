"""Units and uncertain numbers: inside fullstep everything is bytes, seconds, FLOP and tokens."""

from fullstep.quantities.bounds import Bounds
from fullstep.quantities.dtypes import DTYPE_BYTES, DType
from fullstep.quantities.sizes import GB, GIB, MIB, SizeError, format_gib, parse_size_bytes

__all__ = ["DTYPE_BYTES", "GB", "GIB", "MIB", "Bounds", "DType", "SizeError", "format_gib", "parse_size_bytes"]
