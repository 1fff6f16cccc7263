"""Number formats by torch's names and how many bytes one element takes."""

from __future__ import annotations

from typing import Literal

DType = Literal["float32", "bfloat16", "float16", "fp8", "int8"]

DTYPE_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1}
