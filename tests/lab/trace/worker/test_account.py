"""FLOPs and micro-batches of a step from those that were traced."""

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
    numbers = [moment.micro_batch for moment in found.timeline if moment.phase == "forward"]
    assert sorted(set(numbers)) == [1, 2, 8]  # the last one traced is the last one of the step


def test_two_stretches_of_one_landmark_add_up() -> None:
    """A class that calls two loss functions after another has two stretches of loss."""
    stream = Stream()
    stream.segments = [Segment(2, 1, "forward"), Segment(2, 1, "loss"), Segment(2, 1, "loss")]
    for segment, size in enumerate((512, 1024, 512)):
        stream.tensors.append(TensorRecord(size, (size,), "torch.uint8", "made", "", ("", 0), segment, OUTSIDE))
        stream.append(segment, size, 0, OUTSIDE, segment)
    stream.flops = {(1, OUTSIDE): 10, (2, OUTSIDE): 10}
    settle_holdings(stream)
    timeline = account(stream, 1).timeline
    assert [(moment.phase, moment.flops, moment.allocated_peak_bytes) for moment in timeline] == [("forward", 0, 512), ("loss", 20, 2048)]


def test_a_step_in_which_nothing_comes_or_goes_has_its_instant() -> None:
    """States on the host and a step in place: what is there is what there was."""
    stream = Stream()
    stream.segments = [Segment(2, 1, "forward"), Segment(2, 1, "backward")]
    stream.segments += [Segment(2, 0, "optimizer_step"), Segment(2, 0, "gradients_cleared")]
    for segment, size in enumerate((512, 1024)):
        stream.tensors.append(TensorRecord(size, (size,), "torch.uint8", "made", "", ("", 0), segment, OUTSIDE))
        stream.append(segment, size, 0, OUTSIDE, segment)
    settle_holdings(stream)
    found = account(stream, 1)
    assert {instant.at: instant.allocated_bytes for instant in found.instants} == {"forward": 512, "backward": 1536, "optimizer_step": 1536}
    assert [moment.phase for moment in found.timeline] == ["forward", "backward", "optimizer_step", "gradients_cleared"]
    assert found.timeline[-1].allocated_peak_bytes == 1536
