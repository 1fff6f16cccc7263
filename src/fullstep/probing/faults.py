"""What an error says of memory that ran out."""

from __future__ import annotations

import errno
import re
from typing import Any, NamedTuple

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}
_LARGEST = 2**63
"""that is taken for a size"""
_SIZE = rf"(\d{{1,20}}(?:\.\d{{1,20}})?) ?({'|'.join(_UNITS)})\b"
_ASKED = re.compile(rf"(?:[Tt]ried to allocate|[Uu]nable to allocate) {_SIZE}")
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch")
_CACHED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_LIMIT = re.compile(rf"{_SIZE} allowed")
_CAPACITY = re.compile(rf"total capacity of {_SIZE}")
_SIGNS = (
    "out of memory. Tried to allocate", "can't allocate memory: you tried to allocate", "not enough memory: you tried to allocate",
    "std::bad_alloc", "CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "Unable to allocate ", "CUBLAS_STATUS_ALLOC_FAILED",
    "'out of memory'",
)  # fmt: skip
"""of torch's allocators, C++, CUDA, numpy; of cuBLAS, whose workspace finds no room; of NCCL: Cuda failure 2 'out of memory'"""
_MOST_SIGNS = 4000


class RanOut(NamedTuple):
    """Bytes; None: it does not say."""

    asked_bytes: int | None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    limit_bytes: int | None = None


def ran_out(error: BaseException) -> RanOut | None:
    """Of an error, or of one that led to it; None: none is about memory."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        text = str(each)[:_MOST_SIGNS]
        kind = type(each).__name__ == "OutOfMemoryError" or isinstance(each, MemoryError)
        if kind or any(sign in text for sign in _SIGNS) or (isinstance(each, OSError) and each.errno == errno.ENOMEM):
            return ran_out_in(text)
        each = each.__cause__ or each.__context__
    return None


def says_so(text: str) -> bool:
    """A text, such as a line of output, tells of memory that ran out.

    >>> says_so("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    True
    >>> says_so("ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out of memory'")
    True
    """
    return any(sign in text for sign in _SIGNS) or text.startswith(("MemoryError", "numpy._core._exceptions._ArrayMemoryError"))


def ran_out_in(text: str) -> RanOut:
    """What a message says.

    >>> ran_out_in("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")
    RanOut(asked_bytes=4096, allocated_bytes=None, reserved_bytes=None, limit_bytes=None)
    >>> ran_out_in("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 1.00 GiB of which 1 MiB is free. "
    ...            "Of the allocated memory 3.00 MiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated.")
    RanOut(asked_bytes=2097152, allocated_bytes=3145728, reserved_bytes=4194304, limit_bytes=1073741824)
    """
    allocated, cached = _bytes(_ALLOCATED, text), _bytes(_CACHED, text)
    reserved = None if allocated is None or cached is None else allocated + cached
    return RanOut(_bytes(_ASKED, text), allocated, reserved, _bytes(_LIMIT, text) or _bytes(_CAPACITY, text))


def _bytes(pattern: re.Pattern[str], text: str) -> int | None:
    found: Any = pattern.search(text)
    size = None if found is None else round(float(found[1]) * _UNITS[found[2]])
    return size if size is None or size <= _LARGEST else None
