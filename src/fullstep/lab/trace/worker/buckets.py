"""DDP's buckets of the whole model. They join parameters of many blocks, so that no block that is repeated could give them.

torch's own wrapper is built a second time, around parameters alone, as many as the whole model trains; what it allocates takes the place of
what it allocated for the model with fewer blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from fullstep.lab.program.blocks import Blocks
from fullstep.lab.trace.worker.replicate import NotAlikeError
from fullstep.lab.trace.worker.stream import RELEASE, Stream


def trained_of_whole(trained: Iterable[nn.Parameter], block_of: Callable[[nn.Parameter], int], blocks: Blocks) -> nn.Module:
    """A module that only holds parameters: of the shapes and in the order in which the whole model trains them.

    Args:
        trained: of the model with fewer blocks, in its order
        block_of: from a parameter to its block there
        blocks: which of them are repeated
    """
    found: list[nn.Parameter] = []
    stretch: list[nn.Parameter] = []
    for parameter in trained:
        inside = blocks.first <= block_of(parameter) < blocks.first + blocks.length
        if stretch and not inside:
            found += stretch * blocks.repeated
            stretch = []
        found.append(parameter)
        stretch += [parameter] if inside else []
    found += stretch * blocks.repeated
    holder = nn.Module()
    holder.all = nn.ParameterList(nn.Parameter(torch.empty_like(parameter)) for parameter in found)
    return holder


def impose(stream: Stream, start: int, whole: Stream) -> None:
    """Gives what the wrapper allocated the sizes that it has for the whole model.

    Args:
        stream: of the model with fewer blocks
        start: its first event that is the wrapper's
        whole: what the wrapper did around the parameters of the whole model

    Raises:
        NotAlikeError: it allocates more or fewer tensors there
    """
    here = [size == RELEASE for size in stream.sizes[start:]]
    if here != [size == RELEASE for size in whole.sizes]:
        raise NotAlikeError(f"DDP makes {len(whole)} tensors for the whole model and {len(here)} for the one with fewer blocks")
    stream.sizes[start:] = whole.sizes
    for which, of_whole in zip(stream.which[start:], whole.which, strict=True):
        record, other = stream.tensors[which], whole.tensors[of_whole]
        record.size_bytes, record.shape = other.size_bytes, other.shape
