"""Adapters on one linear of 64 inputs and 128 outputs, ten tokens, by hand; peft's order of operations."""

from __future__ import annotations

import pytest

from fullstep.models import Linear
from fullstep.physics.memory.adapters import bottleneck
from fullstep.physics.memory.kernels import AdapterKernels, Kernels
from fullstep.physics.memory.layers import linear
from fullstep.physics.memory.tape import Profile, Tape

TOKENS, INPUTS, OUTPUTS, RANK = 10, 64, 128, 4


def adapter(kind: str, **changes: object) -> AdapterKernels:
    plain = AdapterKernels(
        kind=kind, rank=RANK, targets=frozenset({"down_proj"}), dropout=False, element_bytes=4, new_gradient=4, casts_input=True
    )
    return plain._replace(**changes)  # type: ignore[arg-type]


def played(kernels: Kernels, role: str = "up") -> Profile:
    tape = Tape(TOKENS * INPUTS * 2)
    out = linear(tape, kernels, 0, Linear(name="down_proj", role=role, inputs=INPUTS, outputs=OUTPUTS))  # type: ignore[arg-type]
    tape.op((out,), 1)
    return tape.play()


@pytest.fixture
def frozen(kernels: Kernels) -> Kernels:
    return kernels._replace(trains_weights=False)


def test_lora_without_autocast_copies_its_input_to_float32(frozen: Kernels) -> None:
    """Kept: the float32 copy (4 in) and the low-rank product (4 r). Left: gradients of A and B."""
    found = played(frozen._replace(adapter=adapter("lora")))
    assert found.saved == TOKENS * (4 * INPUTS + 4 * RANK)
    assert found.weight_gradient == 4 * RANK * (INPUTS + OUTPUTS)


def test_lora_under_autocast_keeps_a_16_bit_copy(frozen: Kernels) -> None:
    """peft casts to float32, autocast back: the second copy is kept, not the first."""
    found = played(frozen._replace(autocast=True, adapter=adapter("lora")))
    assert found.saved == TOKENS * (2 * INPUTS + 2 * RANK)


def test_lora_in_the_bases_dtype_keeps_the_input_itself(frozen: Kernels) -> None:
    found = played(frozen._replace(adapter=adapter("lora", element_bytes=2, new_gradient=2)))
    assert found.saved == TOKENS * (2 * INPUTS + 2 * RANK)
    assert found.weight_gradient == 2 * RANK * (INPUTS + OUTPUTS)


def test_dropout_keeps_its_mask_beside_the_dropped_copy(frozen: Kernels) -> None:
    without, with_ = (played(frozen._replace(adapter=adapter("lora", dropout=drops))).saved for drops in (False, True))
    assert with_ - without == TOKENS * INPUTS


def test_other_linears_carry_nothing(frozen: Kernels) -> None:
    found = played(frozen._replace(adapter=adapter("lora", targets=frozenset({"q_proj"}))))
    assert (found.saved, found.weight_gradient) == (0, 0)


def test_dora_keeps_both_products(frozen: Kernels) -> None:
    """Magnitude times product: its gradient needs the base's output (2 bytes) and the adapter's (4 without autocast)."""
    lora, dora = (played(frozen._replace(adapter=adapter(kind))) for kind in ("lora", "dora"))
    assert dora.saved - lora.saved == TOKENS * OUTPUTS * (2 + 4)


def test_dora_makes_the_merged_weight_for_its_norm(frozen: Kernels) -> None:
    """Kept while the norm is taken: A's input, an identity of float32. Then B A, the float32 weight, the scaled product and their sum.

    Alive besides: A's and B's inputs, the base's output, B's output and its scaled self.
    """
    norm = 4 * INPUTS**2 + 4 * 4 * INPUTS * OUTPUTS
    tokens = TOKENS * (4 * INPUTS + 4 * RANK + (2 + 4 + 4) * OUTPUTS)
    assert played(frozen._replace(adapter=adapter("dora"))).forward_peak == norm + tokens
    many = INPUTS * 16  # of many inputs the identity itself is the most: in float32, and as autocast's 16-bit copy
    tape = Tape(TOKENS * many * 2)
    autocast = frozen._replace(autocast=True, adapter=adapter("dora"))
    linear(tape, autocast, 0, Linear(name="down_proj", role="up", inputs=many, outputs=OUTPUTS))
    assert tape.play().forward_peak == pytest.approx((4 + 2) * many**2, rel=0.03)


def test_ia3_scales_outputs_or_the_last_products_input(frozen: Kernels) -> None:
    scaled = played(frozen._replace(adapter=adapter("ia3")))
    assert scaled.saved == TOKENS * OUTPUTS * 2  # the base's output, in its own dtype
    down = played(frozen._replace(adapter=adapter("ia3")), role="down")
    assert down.saved == TOKENS * INPUTS * 4  # the float32 copy of the input


def test_fused_kernel_keeps_its_input_alone(frozen: Kernels) -> None:
    fused = frozen._replace(fused=True, quantized=True, adapter=adapter("qlora"))
    assert played(fused).saved == TOKENS * INPUTS * 2
    drops = fused._replace(adapter=adapter("qlora", dropout=True))
    assert played(drops).saved == 2 * TOKENS * INPUTS * 2


def test_bottleneck_keeps_its_input_and_both_narrow_tensors(frozen: Kernels) -> None:
    """Float32 adapters: a float32 copy of the input, the narrow tensor before and after the activation. Biases train too."""
    tape = Tape(TOKENS * INPUTS * 2)
    bottleneck(tape, frozen._replace(adapter=adapter("bottleneck")), 0, INPUTS)
    found = tape.play()
    assert found.saved == TOKENS * (4 * INPUTS + 4 * RANK + 4 * RANK)
    assert found.weight_gradient == 4 * (2 * INPUTS * RANK + RANK + INPUTS)
    assert bottleneck(tape, frozen, 7, INPUTS) == 7  # no adapter, nothing added
