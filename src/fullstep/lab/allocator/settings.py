"""What of ``PYTORCH_CUDA_ALLOC_CONF`` and of the card decides how much the caching allocator reserves, and its rounding rules."""

from __future__ import annotations

from dataclasses import dataclass

from fullstep.errors import Fault, InputError

MIB = 1 << 20

MIN_BLOCK_BYTES = 512
"""``kMinBlockSize``: every size is rounded up to a multiple of it"""
SMALL_BYTES = MIB
"""``kSmallSize``: the largest size that the small pool serves"""
SMALL_SEGMENT_BYTES = 2 * MIB
"""``kSmallBuffer``: a segment of the small pool"""
LARGE_SEGMENT_BYTES = 20 * MIB
"""``kLargeBuffer``: a segment for sizes between 1 and 10 MiB; a page of the large pool with expandable segments"""
MIN_LARGE_BYTES = 10 * MIB
"""``kMinLargeAlloc``: from this size on a segment is as large as what was asked for"""
ROUND_LARGE_BYTES = 2 * MIB
"""``kRoundLarge``: to a multiple of it"""
UNLIMITED = 1 << 62
"""larger than any size"""

_INTERVALS = 16
"""``kRoundUpPowerOfTwoIntervals``: 1, 2, 4 … MiB up to 32 GiB"""


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """Settings of the allocator on one device; sizes in bytes. The defaults are torch's.

    Raises:
        InputError: where torch would refuse the setting too
    Source:
        torch's ``c10/core/AllocatorConfig.h`` and ``.cpp``
    """

    expandable_segments: bool = False
    max_split_bytes: int | None = None
    """``max_split_size_mb``: blocks from this size on are never split; None: no limit"""
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    """by how much less than such a block a request may be that still gets it"""
    roundup_power2_divisions: tuple[int, ...] = ()
    """powers of two; one for all sizes, or 16: for sizes below 2 MiB, below 4 MiB, … and from 32 GiB on; 0 and 1 switch it off"""
    garbage_collection_threshold: float = 0.0
    """share of ``allowed_bytes`` above which old cached segments are given back; without ``allowed_bytes`` torch ignores it"""
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    """``large_segment_size_mb``"""
    capacity_bytes: int | None = None
    """what CUDA can hand out in all: the card less the context and whatever else is on it; None: no end"""
    allowed_bytes: int | None = None
    """what ``torch.cuda.set_per_process_memory_fraction`` leaves to the process, as bytes; None: not set"""

    def __post_init__(self) -> None:
        """Refuse what torch refuses."""
        split, divisions, threshold, large = (
            self.max_split_bytes, self.roundup_power2_divisions, self.garbage_collection_threshold, self.large_segment_bytes,
        )  # fmt: skip
        rules = [
            ("max_split_bytes", f"at least {large}, or None", split is None or split >= large),
            ("roundup_power2_divisions", "nothing, one or 16 powers of two or zeros", _are_divisions(divisions)),
            ("garbage_collection_threshold", "0 up to, but not including, 1", 0 <= threshold < 1),
            ("large_segment_bytes", f"whole MiB above {MIN_LARGE_BYTES}", large > MIN_LARGE_BYTES and large % MIB == 0),
        ]
        if found := [_fault(name, getattr(self, name), allowed) for name, allowed, holds in rules if not holds]:
            raise InputError(*found)

    @property
    def collects_garbage(self) -> bool:
        """Torch looks at the threshold only where a memory fraction is set (``allowed_memory_maximum.has_value()``)."""
        return self.allowed_bytes is not None and self.garbage_collection_threshold > 0

    def rounded(self, size_bytes: int) -> int:
        """Bytes of the block that serves a request (``round_size``).

        >>> AllocatorSettings().rounded(1), AllocatorSettings().rounded(513)
        (512, 1024)
        >>> AllocatorSettings(roundup_power2_divisions=(4,)).rounded(5 * MIB + 1) // MIB  # 4, 5, 6, 7, 8 MiB
        6
        """
        if size_bytes < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        divisions = self._divisions(size_bytes)
        if divisions > 1 and size_bytes > MIN_BLOCK_BYTES * divisions:
            step = (1 << (size_bytes.bit_length() - 1)) // divisions
            return -(-size_bytes // step) * step
        return -(-size_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES

    def segment_bytes(self, rounded_bytes: int) -> int:
        """Bytes that ``cudaMalloc`` is asked for where no cached block serves a request (``get_allocation_size``).

        >>> [AllocatorSettings().segment_bytes(mib * MIB) // MIB for mib in (1, 2, 10, 11)]
        [2, 20, 10, 12]
        """
        if rounded_bytes <= SMALL_BYTES:
            return SMALL_SEGMENT_BYTES
        if rounded_bytes < MIN_LARGE_BYTES:
            return self.large_segment_bytes
        return -(-rounded_bytes // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES

    def conf_text(self) -> str:
        """The settings as they stand in ``PYTORCH_CUDA_ALLOC_CONF``; defaults left out."""
        parts = []
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_bytes is not None:
            parts.append(f"max_split_size_mb:{self.max_split_bytes // MIB}")
        if self.max_non_split_rounding_bytes != LARGE_SEGMENT_BYTES:
            parts.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding_bytes // MIB}")
        if len(self.roundup_power2_divisions) == 1:
            parts.append(f"roundup_power2_divisions:{self.roundup_power2_divisions[0]}")
        elif self.roundup_power2_divisions:
            pairs = ",".join(f"{1 << place}:{count}" for place, count in enumerate(self.roundup_power2_divisions))
            parts.append(f"roundup_power2_divisions:[{pairs}]")
        if self.garbage_collection_threshold:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold}")
        if self.large_segment_bytes != LARGE_SEGMENT_BYTES:
            parts.append(f"large_segment_size_mb:{self.large_segment_bytes // MIB}")
        return ",".join(parts)

    def _divisions(self, size_bytes: int) -> int:
        """``roundup_power2_divisions(size)``: by the power of two below the size, counted from 1 MiB on."""
        divisions = self.roundup_power2_divisions
        if len(divisions) <= 1:
            return divisions[0] if divisions else 0
        interval = size_bytes.bit_length() - MIB.bit_length()
        return divisions[min(max(0, interval), _INTERVALS - 1)]


def _fault(name: str, found: object, allowed: str) -> Fault:
    return Fault(where=f"allocator settings: {name}", found=str(found), allowed=allowed, remedy="Torch refuses it too.")


def _are_divisions(divisions: tuple[int, ...]) -> bool:
    return len(divisions) in (0, 1, _INTERVALS) and all(count >= 0 and not count & (count - 1) for count in divisions)
