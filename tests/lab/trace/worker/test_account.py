"""FLOPs of a step from those of the micro-batches that were traced."""

from __future__ import annotations

from fullstep.lab.trace.worker.account import account, settle_holdings
from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Segment, Stream, TensorRecord


def test_all_micro_batches_count_and_the_optimizer_once() -> None:
    """Eight micro-batches of which three were traced, 10 FLOP each, and an optimizer of 7 that comes back to its block a hundred times."""
    stream = Stream()
    stream.segments = [Segment(2, 1, "forward"), Segment(2, 2, "forward"), Segment(2, 3, "forward"), Segment(2, 0, "optimizer_step")]
    for segment in range(4):
        for visit in range(100):
            block = visit % 2
            number = len(stream.tensors)
            stream.tensors.append(TensorRecord(512, (512,), "torch.uint8", "made", "", ("", 0), segment, block))
            stream.append(number, 512, 0, block, segment)
            stream.append(number, RELEASE, 0, block, segment)
    stream.flops = {(0, 0): 10, (1, 0): 10, (2, 0): 10, (3, 1): 7, (3, OUTSIDE): 0}
    settle_holdings(stream)
    found = account(stream, 8)
    assert found.flops == 8 * 10 + 7
    assert sum(moment.flops for moment in found.timeline) == 3 * 10 + 7
