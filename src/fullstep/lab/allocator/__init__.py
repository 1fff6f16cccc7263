"""A model of torch's CUDA caching allocator: what is reserved for a stream of allocations, and a snapshot for torch's memory viewer.

Needs no torch. The rules are those of the native backend, read from torch's main branch after 2.9: ``c10/cuda/CUDACachingAllocator.cpp``
and ``c10/core/AllocatorConfig.h``. Left out: CUDA graphs, private pools, ``record_stream``, and other processes on the card.
"""

from fullstep.lab.allocator.caching import CachingAllocator, DeviceOutOfMemoryError
from fullstep.lab.allocator.device import SegmentEvent
from fullstep.lab.allocator.recording import Comparison, replay_recording
from fullstep.lab.allocator.replay import RELEASE, Event, OutOfMemory, Replay, replay
from fullstep.lab.allocator.segments import KnownBlock, Segment, adopt_segment, segments_of
from fullstep.lab.allocator.settings import AllocatorSettings
from fullstep.lab.allocator.snapshot import Frame, Frames, write_snapshot

__all__ = [
    "RELEASE",
    "AllocatorSettings",
    "CachingAllocator",
    "Comparison",
    "DeviceOutOfMemoryError",
    "Event",
    "Frame",
    "Frames",
    "KnownBlock",
    "OutOfMemory",
    "Replay",
    "Segment",
    "SegmentEvent",
    "adopt_segment",
    "replay",
    "replay_recording",
    "segments_of",
    "write_snapshot",
]
