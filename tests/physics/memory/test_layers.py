"""Layers of a block by hand: what torch's derivatives keep, per element of one row of ten tokens."""

from __future__ import annotations

import pytest

from fullstep.models import Linear, Norm
from fullstep.physics.memory.kernels import Kernels
from fullstep.physics.memory.layers import activation, add, linear, norm, product
from fullstep.physics.memory.tape import Profile, Tape

TOKENS, WIDTH = 10, 64
ELEMENTS = TOKENS * WIDTH


def one_norm(kernels: Kernels, kind: str, parameters: int = WIDTH) -> Profile:
    tape = Tape(ELEMENTS * kernels.residual)
    norm(tape, kernels, 0, Norm(place="attention_input", kind=kind, width=WIDTH, parameters=parameters))  # type: ignore[arg-type]
    return tape.play()


def test_root_mean_square_norm_of_transformers(kernels: Kernels) -> None:
    """float32 copy 4, normalised 2, one inverse root per row; the copy goes where the input is float32 already."""
    assert one_norm(kernels, "rms").saved == ELEMENTS * (4 + 2) + 4 * TOKENS
    assert one_norm(kernels, "rms").weight_gradient == 2 * WIDTH
    frozen = kernels._replace(trains_weights=False)
    assert one_norm(frozen, "rms").saved == ELEMENTS * 4 + 4 * TOKENS  # the normalised copy is there for the scale's gradient
    wide = kernels._replace(residual=4)
    assert one_norm(wide, "rms").saved == ELEMENTS * (4 + 4) + 4 * TOKENS  # the input itself, and the normalised one


def test_norm_scaled_in_float32(kernels: Kernels) -> None:
    assert one_norm(kernels, "rms_float32").saved == ELEMENTS * (4 + 4) + 4 * TOKENS


def test_layer_norm_is_one_kernel(kernels: Kernels) -> None:
    """native_layer_norm keeps its input, mean and inverse deviation of each row."""
    assert one_norm(kernels, "layer", 2 * WIDTH).saved == ELEMENTS * 2 + 2 * 4 * TOKENS
    autocast = kernels._replace(autocast=True)
    assert one_norm(autocast, "layer", 2 * WIDTH).saved == ELEMENTS * 4 + 2 * 4 * TOKENS  # on autocast's float32 list


def test_norm_without_weights_keeps_no_normalised_copy(kernels: Kernels) -> None:
    assert one_norm(kernels, "rms", 0).saved == ELEMENTS * 4 + 4 * TOKENS
    assert one_norm(kernels, "rms", 0).weight_gradient == 0


def one_linear(kernels: Kernels, **shape: object) -> Profile:
    tape = Tape(ELEMENTS * kernels.residual)
    linear(tape, kernels, 0, Linear(name="up_proj", role="up", inputs=WIDTH, outputs=128, **shape))  # type: ignore[arg-type]
    return tape.play()


def test_linear_keeps_its_input_only_where_it_trains(kernels: Kernels) -> None:
    trained = one_linear(kernels, bias=True)
    assert (trained.saved, trained.output) == (ELEMENTS * 2, TOKENS * 128 * 2)
    assert trained.weight_gradient == (WIDTH * 128 + 128) * 2
    frozen = one_linear(kernels._replace(trains_weights=False))
    assert (frozen.saved, frozen.weight_gradient) == (0, 0)


def test_linear_under_autocast_copies_its_input(kernels: Kernels) -> None:
    wide = kernels._replace(residual=4, autocast=True, stored=4, new_gradient=4, gradient_work=2)
    found = one_linear(wide)
    assert found.saved == ELEMENTS * 2
    assert found.weight_gradient == WIDTH * 128 * 4
    assert found.backward_peak == ELEMENTS * 2 + TOKENS * 128 * 2 + ELEMENTS * 2 + WIDTH * 128 * (4 + 2)


def test_four_bit_linear_dequantizes_its_weight_each_way(kernels: Kernels) -> None:
    frozen = kernels._replace(trains_weights=False, quantized=True)
    found = one_linear(frozen)
    assert found.saved == 0
    assert found.forward_peak == TOKENS * 128 * 2 + WIDTH * 128 * 2
    assert found.backward_peak == TOKENS * 128 * 2 + ELEMENTS * 2 + WIDTH * 128 * 2
    assert one_linear(frozen._replace(quantized_keeps_input=True)).saved == ELEMENTS * 2
    assert one_linear(frozen._replace(residual=4)).output == TOKENS * 128 * 4  # it returns its input's dtype


def test_grouped_products_of_experts_run_in_the_weights_dtype(kernels: Kernels) -> None:
    """float32 under autocast: float32 input, output and gradient, and no copy of the gradient."""
    wide = kernels._replace(residual=4, autocast=True, stored=4, new_gradient=4, gradient_work=2, stacks_experts=True)
    found = one_linear(wide, copies=8, stacked=True)
    assert (found.saved, found.output) == (ELEMENTS * 4, TOKENS * 128 * 4)
    assert found.backward_peak == ELEMENTS * 4 + TOKENS * 128 * 4 + ELEMENTS * 4 + 8 * WIDTH * 128 * 4


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("silu", 2),  # its input
        ("gelu", 2),
        ("relu2", 2),  # relu's output, which the square keeps too
        ("gelu_new", 2 + 3 * 2),  # 0.5 x, the cube's x, tanh, 1 + tanh: x * x^2 keeps x, tanh its output, the product both factors
    ],
)
def test_activations(kernels: Kernels, name: str, saved: int) -> None:
    tape = Tape(ELEMENTS * 2)
    inner = activation(tape, kernels, 0, name)
    tape.op((inner,), 1)
    assert tape.play().saved == ELEMENTS * saved


def test_gelu_new_of_float32_makes_no_wider_copy(kernels: Kernels) -> None:
    """4-bit layers give float32: four tensors of 4 bytes. Of 16 bits: half of x in 2, and in 4 a copy of x, tanh and 1 + tanh."""
    wide, narrow = Tape(ELEMENTS * 4), Tape(ELEMENTS * 2)
    autocast = kernels._replace(autocast=True)
    for tape in (wide, narrow):
        tape.op((activation(tape, autocast, 0, "gelu_new", ELEMENTS),), 1)
    assert wide.play().saved == ELEMENTS * 4 * 4
    assert narrow.play().saved == ELEMENTS * (2 + 3 * 4)


def test_relu_keeps_its_output(kernels: Kernels) -> None:
    tape = Tape(ELEMENTS * 2)
    inner = activation(tape, kernels, 0, "relu")
    tape.op((inner,), 1)
    profile = tape.play()
    assert profile.saved == ELEMENTS * 2
    assert profile.forward_peak == ELEMENTS * 2 + 1  # the output alone, the input counts where it is kept


def test_product_keeps_both_factors_and_sum_none() -> None:
    tape = Tape(8)
    left, right = tape.op((0,), 8), tape.op((0,), 8)
    tape.op((product(tape, left, right),), 1)
    assert tape.play().saved == 16
    other = Tape(8)
    branch = other.op((0,), 8)
    assert other.size(add(other, 0, branch)) == 8
    assert other.play().saved == 0
