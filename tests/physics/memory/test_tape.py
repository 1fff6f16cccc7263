"""The tape by hand: what autograd keeps, frees and adds, on graphs of one to three operations. Sizes in bytes."""

from __future__ import annotations

from fullstep.physics.memory.tape import Profile, Tape


def test_a_product_with_a_weight_that_trains() -> None:
    """x (8) -> y (4), keeps x; its weight's gradient takes 16. Backward: x 8, gradients of y 4 and x 8, and 16 that stay."""
    tape = Tape(8)
    tape.op((0,), 4, saves=(0,), trains=True, weight_gradient=16)
    assert tape.play() == Profile(
        saved=8, output=4, forward_peak=4, forward_peak_unsaved=4, backward_peak=8 + 4 + 8 + 16, weight_gradient=16, kept_at_peak=8,
        weight_gradient_at_peak=16, kept_input=8,
    )  # fmt: skip


def test_the_peak_may_come_before_a_weights_gradient() -> None:
    """x (8) -> y (4) with a weight of 2, y -> z (4) with a temporary of 100 in backward, which keeps 6 beside: the peak lies there."""
    tape = Tape(8)
    first = tape.op((0,), 4, saves=(0,), trains=True, weight_gradient=2)
    tape.op((first,), 4, extra_saved=6, backward_work=100)
    profile = tape.play()
    assert profile.backward_peak == 8 + 6 + 100 + 4 + 4  # x, what is kept beside, the temporary, gradients of z and y
    assert (profile.kept_at_peak, profile.weight_gradient_at_peak, profile.weight_gradient) == (8 + 6, 0, 2)


def test_nothing_is_kept_where_no_gradient_flows() -> None:
    tape = Tape(8, input_needs_gradient=False)
    tape.op((0,), 4, saves=(0,), saves_output=True, extra_saved=3, backward_work=100)
    assert tape.play() == Profile(0, 4, 4, 4, 0, 0, 0, 0, 0)


def test_a_frozen_input_keeps_what_a_trained_weight_needs() -> None:
    tape = Tape(8, input_needs_gradient=False)
    tape.op((0,), 4, saves=(0,), trains=True, weight_gradient=16)
    profile = tape.play()
    assert profile.saved == 8
    assert profile.backward_peak == 8 + 4 + 16  # no gradient of the input is made


def test_an_output_that_two_operations_keep_counts_once() -> None:
    """relu keeps its output; the product after it keeps the same tensor."""
    tape = Tape(8)
    positive = tape.op((0,), 8, saves_output=True)
    tape.op((positive,), 4, saves=(positive,))
    profile = tape.play()
    assert (profile.saved, profile.forward_peak) == (8, 8 + 4)
    assert profile.backward_peak == 8 + 8 + 8  # in relu's own backward: its output, and gradients of output and input


def test_the_last_output_is_not_among_what_is_kept() -> None:
    tape = Tape(8)
    tape.op((0,), 8, saves_output=True)
    assert tape.play().saved == 0


def test_a_tensor_dies_with_its_last_reader() -> None:
    """A chain of three tens: two are alive at a time when nothing is kept, all three when each operation keeps its input."""
    passing, keeping = Tape(10), Tape(10)
    for tape, saves in ((passing, False), (keeping, True)):
        last = 0
        for _ in range(3):
            last = tape.op((last,), 10, saves=(last,) if saves else ())
    assert (passing.play().forward_peak, passing.play().saved) == (20, 0)
    kept = keeping.play()
    assert (kept.forward_peak, kept.forward_peak_unsaved, kept.saved) == (30, 20, 30)


def test_local_variables_keep_tensors_alive() -> None:
    def peak(*, holds: bool) -> float:
        tape = Tape(10)
        first = tape.op((0,), 10)
        second = tape.op((first,), 10)
        tape.op((second,), 10, holds=(first,) if holds else ())
        return tape.play().forward_peak

    assert (peak(holds=False), peak(holds=True)) == (20, 30)


def test_statistics_and_temporaries() -> None:
    """A norm of 8 bytes with 3 of statistics, 5 of temporaries forward and 7 backward."""
    tape = Tape(8)
    tape.op((0,), 8, extra_saved=3, forward_work=5, backward_work=7)
    profile = tape.play()
    assert (profile.saved, profile.forward_peak, profile.forward_peak_unsaved) == (3, 8 + 3 + 5, 8 + 5)
    assert profile.backward_peak == 3 + 8 + 8 + 7


def test_a_tensor_read_twice_gets_the_sum_in_place() -> None:
    """x -> q, x -> k, (q, k) -> s. The second gradient of x (8) is added to the first: at most q 4, x 8 and x again 8."""
    tape = Tape(8)
    query, key = tape.op((0,), 4), tape.op((0,), 4)
    tape.op((query, key), 4)
    assert tape.play().backward_peak == 4 + 8 + 8


def test_a_residual_passes_its_gradient_on() -> None:
    """y = x + f(x): the gradient of y is that of x and of f(x) at once, so adding f's share to it takes a third buffer."""
    tape = Tape(8)
    branch = tape.op((0,), 8, saves=(0,))
    tape.op((0, branch), 8, view=True)
    profile = tape.play()
    assert profile.saved == 8
    assert profile.backward_peak == 8 + 8 + 8 + 8  # what f kept, the gradient of y, f's share of that of x, their sum


def test_a_view_alone_takes_nothing() -> None:
    tape = Tape(8)
    tape.op((0,), 8, view=True)
    assert tape.play().backward_peak == 8


def test_weight_gradients_pile_up() -> None:
    tape = Tape(1)
    first = tape.op((0,), 1, trains=True, weight_gradient=100)
    tape.op((first,), 1, trains=True, weight_gradient=10)
    profile = tape.play()
    assert profile.weight_gradient == 110
    assert profile.backward_peak == 110 + 1 + 1  # both, and the gradients of one tensor and of the one before it


def test_compiled_elementwise_results_are_made_again() -> None:
    """x (20) -> narrow (10, elementwise) -> y, which keeps narrow: compiled, x is kept, and narrow is made again in backward."""

    def play(*, recomputes: bool) -> Profile:
        tape = Tape(20, recomputes=recomputes)
        narrow = tape.op((0,), 10, cheap=True)
        tape.op((narrow,), 5, saves=(narrow,), cheap=True)
        return tape.play()

    eager, compiled = play(recomputes=False), play(recomputes=True)
    assert (eager.saved, compiled.saved) == (10, 20)
    assert compiled.backward_peak == 20 + 10 + 5 + 10  # x, narrow made again, the gradients of y and of narrow
