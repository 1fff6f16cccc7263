"""Sums over many rows, as of the gradient of a norm's weight or of a bias: CUDA's reduction gives every block of threads a buffer.

Source: aten/src/ATen/native/cuda/Reduce.cuh (setReduceConfig, ReduceConfig::global_memory_size and semaphore_size), which is among the
headers that torch brings.
"""

from __future__ import annotations

_THREADS = 512
"""of a block (max_reduce_threads)"""
_WARP = 32
_FEWEST_VALUES, _MOST_VALUES = 16, 256
"""per thread"""
_LARGEST_OFFSET = 2**31 - 1
"""in bytes; what reaches further is halved until it does not"""
_ACCUMULATED_BYTES = 4
"""float32, also for 16-bit inputs"""


def column_sum_buffers(rows: int, columns: int, element_bytes: int, processors: int, threads_per_processor: int) -> list[int]:
    """Bytes of the partial sums and of the counters that a sum over all rows takes, or nothing where one block does it.

    Args:
        rows: summed
        columns: kept, one behind the other
        element_bytes: of the input
        processors: streaming multiprocessors of the card
        threads_per_processor: that it holds at most

    >>> column_sum_buffers(4096, 4096, 2, 132, 2048)
    [134217728, 128]
    """
    while rows * columns * element_bytes > _LARGEST_OFFSET:
        rows = -(-rows // 2)
    vector = next(size for size in (4, 2, 1) if columns % size == 0)
    most = _THREADS // vector
    outputs = columns // vector
    across, down = (min(1 << (number.bit_length() - 1), most) for number in (outputs, rows))
    width = min(across, _WARP)
    height = min(down, most // width)
    width = min(across, most // height)
    if rows < min(16 * height, _MOST_VALUES):
        return []
    per_thread = -(-rows // height)
    grid, target = -(-outputs // width), processors * (threads_per_processor // (width * height))
    if per_thread < _MOST_VALUES or grid > target:
        return []
    blocks = max(min(-(-target // grid), -(-per_thread // _FEWEST_VALUES)), -(-per_thread // _MOST_VALUES))
    return [_ACCUMULATED_BYTES * columns * blocks * width * vector, 4 * grid] if blocks > 1 else []
