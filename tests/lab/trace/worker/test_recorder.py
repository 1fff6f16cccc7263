"""What the recorder writes down, operation by operation, against what torch does with real tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import register_multi_grad_hook
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from fullstep.hardware import find_card
from fullstep.lab.trace.worker.places import Places
from fullstep.lab.trace.worker.recorder import Recorder, watching_resizes
from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Segment
from fullstep.lab.trace.worker.workspaces import Workspaces

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]


class Twice(torch.autograd.Function):
    """Adds two gradients by itself: not the engine."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] + gradients[0]


def in_two_branches(x: Tensor) -> None:
    shared = x.exp()
    (shared.sin() + shared.cos()).sum().backward()


def in_three_branches(x: Tensor) -> None:
    shared = x.exp()
    (shared.sin() + shared.cos() + shared.tanh()).sum().backward()


def into_a_gradient(x: Tensor) -> None:
    x.exp().sum().backward()
    x.exp().sum().backward()


def kept_by_a_hook(x: Tensor) -> None:
    kept: list[Tensor] = []
    shared = x.exp()
    one = shared.sin()
    one.register_hook(kept.append)
    (one * 2 + shared.cos()).sum().backward()


def of_an_expanded_gradient(x: Tensor) -> None:
    (x + x.sum(0, keepdim=True) + x).sum().backward()


def by_a_function(x: Tensor) -> None:
    Twice.apply(x.exp()).sum().backward()


def gathered(x: Tensor) -> None:
    x[torch.tensor([0, 2, 2])].sum().backward()


def scattered(x: Tensor) -> None:
    x.gather(1, torch.zeros(512, 2, dtype=torch.long)).sum().backward()


def embedded(x: Tensor) -> None:
    torch.nn.functional.embedding(torch.tensor([1, 2, 3]), x).pow(2).sum().backward()


def viewed(x: Tensor) -> None:
    x.view(-1).reshape(256, 512).transpose(0, 1).sum().backward()


def recomputed(x: Tensor) -> None:
    """The gradient of a block's input is that input's, before it flows on to the block before."""
    hidden = x * 1
    for _ in range(4):
        hidden = checkpoint(lambda a: torch.tanh(a * 2) + a, hidden, use_reentrant=True, preserve_rng_state=False)
    hidden.sum().backward()


def kept_by_its_input(x: Tensor) -> None:
    """As FSDP1 keeps it, whose hook on the inputs of frozen units holds their node."""
    kept: list[Any] = []

    def block(a: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            kept.append(register_multi_grad_hook([a], lambda _: None))
        return torch.tanh(a * 2) + a

    hidden = x * 1
    for _ in range(4):
        hidden = checkpoint(block, hidden, use_reentrant=True, preserve_rng_state=False)
    hidden.sum().backward()


def sliced(x: Tensor) -> None:
    halves = x.chunk(2, dim=1)
    torch.cat([-halves[1], halves[0]], dim=1).sum().backward()


PROGRAMS = [
    in_two_branches, in_three_branches, into_a_gradient, kept_by_a_hook, of_an_expanded_gradient, by_a_function, gathered, scattered,
    embedded, viewed, recomputed, kept_by_its_input, sliced,
]  # fmt: skip


def sizes_of_fakes(program: Callable[[Tensor], None]) -> list[int]:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x = torch.empty(512, 256, requires_grad=True)
        with Recorder(mode, Places(), no_workspaces()) as recorder:
            recorder.hold([x], "weights")
            program(x)
    return [size for size in recorder.stream.sizes[1:] if size > 64]


def no_workspaces() -> Workspaces:
    found = Workspaces(None)
    found._inside = {}
    return found


def sizes_of_real_tensors(program: Callable[[Tensor], None]) -> list[int]:
    x = torch.rand(512, 256, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        program(x)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()) if event.nbytes() > 64]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_same_allocations_as_with_real_tensors(program: Callable[[Tensor], None]) -> None:
    """Also where autograd writes in place on real tensors and not on fake ones."""
    assert sizes_of_fakes(program) == sizes_of_real_tensors(program)


def events(recorder: Recorder) -> list[tuple[int, int]]:
    return list(zip(recorder.stream.which, recorder.stream.sizes, strict=True))


def test_a_storage_is_released_with_its_last_view(recorder: Recorder) -> None:
    whole = torch.empty(4, 256)
    row = whole[0]
    del whole
    assert events(recorder) == [(0, 4096)]
    del row
    assert events(recorder) == [(0, 4096), (0, RELEASE)]


def test_what_goes_when_the_steps_are_over_is_not_of_the_step(recorder: Recorder) -> None:
    """Python collects a model whenever it likes, also while the stream is read."""
    x = torch.empty(256)
    recorder.stop()
    del x
    assert events(recorder) == [(0, 1024)]


def test_an_operation_in_place_allocates_nothing(recorder: Recorder) -> None:
    x = torch.zeros(256)
    x.add_(1).mul_(2)
    x[:8] = 0.0
    assert [size for _, size in events(recorder) if size > 64] == [1024]


def test_what_was_there_before_is_entered_when_it_is_named(recorder: Recorder) -> None:
    with FakeTensorMode():
        stranger = torch.empty(256)
    x = torch.nn.Parameter(torch.empty(256))
    recorder.hold([x, None, stranger], "weights", lambda number: 7, lambda number: f"part {number}")
    record = recorder.stream.tensors[0]
    assert (record.holding, record.block, record.module, record.size_bytes) == ("weights", 7, "part 0", 1024)
    assert len(recorder.stream.tensors) == 1
    assert recorder.holding_of(x.detach()) == "weights"


def test_a_cast_of_a_weight_works_for_the_moment(recorder: Recorder) -> None:
    x = torch.empty(256)
    recorder.hold([x], "weights")
    cast = x.to(torch.bfloat16)
    assert recorder.holding_of(cast) == "temporaries"


def test_what_is_on_the_host_is_marked(recorder: Recorder) -> None:
    x = torch.empty(256)
    recorder.keep_on_host([x])
    recorder.hold([x], "optimizer_states")
    assert recorder.stream.tensors[0].holding == "host"
    assert x.untyped_storage()._cdata in recorder.host


def test_a_storage_that_is_emptied_and_filled(recorder: Recorder) -> None:
    x = torch.empty(256)
    with watching_resizes(recorder):
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(1024)
        x.untyped_storage().resize_(1024)
    assert events(recorder) == [(0, 1024), (0, RELEASE), (2, 1024)]
    assert recorder.stream.tensors[2].holding == "gathered_parameters"
    del x
    assert events(recorder)[-1] == (2, RELEASE)


def test_each_thread_has_one_workspace_for_matrix_products() -> None:
    with FakeTensorMode() as mode, Recorder(mode, Places(), Workspaces(find_card("H100-SXM"))) as recorder:
        for step in (1, 2):
            for phase in ("forward", "backward"):
                recorder.mark(Segment(step, 1, phase))
    assert [size for _, size in events(recorder)] == [33_554_432, 33_554_432]
    assert [record.operation for record in recorder.stream.tensors] == ["cuBLAS workspace"] * 2


def test_a_kernels_own_buffer_is_there_while_it_runs(recorder: Recorder) -> None:
    recorder.mark(Segment(1, 1, "backward"))
    torch.empty(4096, 4096).sum(0)
    sizes = [size for _, size in events(recorder)]
    inside = 4 * 4096 * 64 * 128 + 4 * 32
    at = sizes.index(inside)
    assert sizes[at - 1 : at + 2] == [4 * 4096, inside, RELEASE]
    assert recorder.stream.tensors[events(recorder)[at][0]].operation == "inside aten.sum.dim_IntList"


def test_in_the_optimizer_work_belongs_to_the_block_of_its_inputs(recorder: Recorder) -> None:
    x, y = torch.empty(256), torch.empty(256)
    recorder.hold([x, y], "weights", lambda number: 3 - number)
    recorder.mark(Segment(1, 0, "optimizer_step"))
    both = torch._foreach_add([x, y], 1.0)
    assert [recorder.stream.tensors[which].block for which in (2, 3)] == [3, 2]
    del both
    assert recorder.stream.blocks[-2:] in ([3, 2], [2, 3])


def test_floating_point_operations_are_counted_by_segment(recorder: Recorder) -> None:
    recorder.mark(Segment(1, 1, "forward"))
    torch.empty(8, 16) @ torch.empty(16, 32)
    assert recorder.stream.flops == {(1, OUTSIDE): 2 * 8 * 16 * 32}
