"""The caching allocator itself: hand out, take back, and what happens when nothing cached fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from fullstep.errors import FullstepError
from fullstep.lab.allocator.blocks import ADDRESS_BITS, Block, Pool
from fullstep.lab.allocator.device import Device, SegmentEvent
from fullstep.lab.allocator.expandable import expandable_size, grown_block
from fullstep.lab.allocator.release import collect_garbage, release_cached, release_oversize
from fullstep.lab.allocator.settings import MIN_BLOCK_BYTES, SMALL_BYTES, UNLIMITED, AllocatorSettings


class DeviceOutOfMemoryError(FullstepError):
    """``torch.cuda.OutOfMemoryError``: everything cached was given back, and CUDA still had no room.

    Sizes in bytes: what the program asked for, the segment that CUDA was asked for, and what was reserved and allocated then.
    """

    def __init__(self, requested_bytes: int, segment_bytes: int, reserved_bytes: int, allocated_bytes: int) -> None:
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes
        self.reserved_bytes = reserved_bytes
        self.allocated_bytes = allocated_bytes
        super().__init__(
            f"CUDA out of memory: tried to allocate {requested_bytes} bytes (a segment of {segment_bytes}); "
            f"{allocated_bytes} bytes are allocated, {reserved_bytes - allocated_bytes} more are reserved but unallocated"
        )


class CachingAllocator:
    """A model of torch's native CUDA caching allocator (``DeviceCachingAllocator`` of ``c10/cuda/CUDACachingAllocator.cpp``).

    Same rounding, pools, best fit, splits, merges, retries and settings, and thus the same reserved bytes, for the same sequence of
    requests. Left out: CUDA graphs and private pools, and ``record_stream``: a block that is given back can be handed out at once, so
    that active and allocated bytes are the same.

    Args:
        settings: of the allocator and the card
        address_of: the address of a new segment of so many bytes; None: one after the other. Only the tie between free blocks of
            equal size depends on addresses
    """

    def __init__(self, settings: AllocatorSettings | None = None, address_of: Callable[[int], int] | None = None) -> None:
        self.settings = settings = settings or AllocatorSettings()
        self.allocated_bytes = 0
        """of all blocks handed out, as ``torch.cuda.memory_allocated()`` counts: whole blocks, not what was asked for"""
        self.peak_allocated_bytes = 0
        self.retries = 0
        """how often everything cached was given back for want of memory (``num_alloc_retries``)"""
        self.device = Device(settings.capacity_bytes, address_of)
        self._small: dict[int, Pool] = {}
        self._large: dict[int, Pool] = {}
        self._searches = 0
        self._max_split = UNLIMITED if settings.max_split_bytes is None else settings.max_split_bytes
        self._round = settings.rounded if any(count > 1 for count in settings.roundup_power2_divisions) else None
        self._plain = not (settings.expandable_segments or settings.collects_garbage or settings.max_split_bytes is not None)

    @property
    def reserved_bytes(self) -> int:
        """What CUDA gave and did not get back (``torch.cuda.memory_reserved()``)."""
        return self.device.reserved_bytes

    @property
    def peak_reserved_bytes(self) -> int:
        """``torch.cuda.max_memory_reserved()``."""
        return self.device.peak_reserved_bytes

    @property
    def segment_events(self) -> list[SegmentEvent]:
        """Every call to CUDA so far, in order."""
        return self.device.history

    def malloc(self, size_bytes: int, stream: int = 0) -> Block:
        """Hand out a block for ``size_bytes``, more than 0 (``malloc``).

        Raises:
            DeviceOutOfMemoryError: if there is no room even after everything cached was given back
        """
        size = (size_bytes + MIN_BLOCK_BYTES - 1) & -MIN_BLOCK_BYTES if self._round is None else self._round(size_bytes)
        pool = (self._small if size <= SMALL_BYTES else self._large).get(stream)
        if pool is None:
            pool = self.pool(size <= SMALL_BYTES, stream)
        if self._plain:
            keys = pool.keys
            position = bisect_left(keys, size << ADDRESS_BITS)
            block = pool.blocks.pop(keys.pop(position)) if position < len(keys) else self._new(pool, size, size_bytes)
        else:
            block = self._best_fit(pool, size) or self._new(pool, size, size_bytes)
        rest = block.size - size
        if rest >= pool.split_from and size < pool.unsplit_from:
            block.size = size
            remainder = Block(block.address + size, rest, pool, block.area)
            remainder.put_after(block)
            pool.insert(remainder, self._searches)
        block.free = False
        block.requested = size_bytes
        self.allocated_bytes += block.size
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes
        return block

    def free(self, block: Block) -> None:
        """Take back a block that was handed out, and merge it with free neighbours (``free_block``). It must not be used again."""
        self.allocated_bytes -= block.size
        pool = block.pool
        after = block.next
        if after is not None and after.free:
            pool.remove(after)
            block.swallow_next()
        before = block.previous
        if before is not None and before.free:
            pool.remove(before)
            before.swallow_next()
            block = before
        pool.insert(block, self._searches)

    def empty_cache(self) -> None:
        """``torch.cuda.empty_cache()``: give back every segment that nobody holds a part of."""
        release_cached(self.device, self._large.values(), self._small.values(), self._searches)

    def pool(self, is_small: bool, stream: int) -> Pool:
        """The pool of free blocks of a stream, made where it does not exist yet."""
        pools = self._small if is_small else self._large
        if stream not in pools:
            splits_fine = is_small or self.settings.expandable_segments
            pools[stream] = Pool(
                is_small=is_small,
                stream=stream,
                split_from=MIN_BLOCK_BYTES if splits_fine else SMALL_BYTES + 1,
                unsplit_from=UNLIMITED if splits_fine else self._max_split,
            )
        return pools[stream]

    def _best_fit(self, pool: Pool, size: int) -> Block | None:
        """The smallest free block that is large enough, or None where it must not be used (``get_free_block``)."""
        if self.settings.collects_garbage and not pool.is_small:
            self._searches += 1
        position = pool.at_least(size)
        if position == len(pool.keys):
            return None
        block = pool.blocks[pool.keys[position]]
        while block.area is not None and (position := position + 1) < len(pool.keys):
            other = pool.blocks[pool.keys[position]]
            if expandable_size(other) >= expandable_size(block):
                break
            block = other
        if size < self._max_split <= block.size:
            return None
        if size >= self._max_split and block.size >= size + self.settings.max_non_split_rounding_bytes:
            return None
        pool.remove(block)
        return block

    def _new(self, pool: Pool, size: int, size_bytes: int) -> Block:
        """A block from CUDA: at once, else after giving back oversize blocks, else after giving back all (``malloc``)."""
        settings = self.settings
        segment_bytes = settings.segment_bytes(size)
        if settings.allowed_bytes is not None and settings.garbage_collection_threshold > 0:
            threshold_bytes = int(settings.garbage_collection_threshold * settings.allowed_bytes)
            collect_garbage(self.device, self._large.values(), threshold_bytes, self._searches)
        block = self._from_cuda(pool, size, segment_bytes)
        if block is None and self._max_split != UNLIMITED and release_oversize(self.device, pool, size, self._max_split):
            block = self._from_cuda(pool, size, segment_bytes)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._from_cuda(pool, size, segment_bytes)
        if block is None:
            raise DeviceOutOfMemoryError(size_bytes, segment_bytes, self.reserved_bytes, self.allocated_bytes)
        return block

    def _from_cuda(self, pool: Pool, size: int, segment_bytes: int) -> Block | None:
        """A new segment, or more of an expandable one; None where there is no room (``alloc_block``)."""
        device, allowed_bytes = self.device, self.settings.allowed_bytes
        if allowed_bytes is not None and device.reserved_bytes + segment_bytes > allowed_bytes:
            return None
        if self.settings.expandable_segments:
            return grown_block(device, pool, size, self.settings.large_segment_bytes, self._searches)
        if not device.has_room(segment_bytes):
            return None
        address = device.segment_address(segment_bytes)
        block = Block(address, segment_bytes, pool)
        device.heads[address] = block
        device.note("segment_alloc", address, segment_bytes, pool.stream)
        return block
