"""The operations of a decoder block as transformers writes them, each with what it keeps for backward.

Every function appends to a tape and returns the tensor that it made. Widths are elements per token.
Source of each rule: the modelling code of transformers 4.45 to 5.23 and torch's derivatives.yaml; the saved bytes of a
llama block, 20 h + 4 kv + 8 f + 4 heads + 8 per token in bfloat16, follow from them and equal what a trace of the real class finds.
"""

from __future__ import annotations

from fullstep.models import Linear, Norm
from fullstep.physics.memory.kernels import AdapterKernels, Kernels
from fullstep.physics.memory.tape import Tape

FLOAT32 = 4
COLUMN_SUM_BYTES = 8
"""torch sums a gradient over all rows (for a scale or shift) through two float32 buffers of its size"""
_COMPOSITE_ACTIVATIONS = frozenset({"gelu_new", "gelu_fast", "quick_gelu", "gelu_accurate"})


def norm(tape: Tape, kernels: Kernels, source: int, shape: Norm, width: int | None = None) -> int:
    """Root-mean-square norm step by step in float32, or torch's layer norm.

    rms: x -> float32 (kept) -> x * rsqrt(mean(x^2)) -> back to x's dtype (kept where the scale trains) -> times scale.
    layer: keeps its input and two statistics per row of it.
    """
    tokens = kernels.tokens
    elements = tokens * (width if width is not None else shape.width)
    dtype = tape.size(source) / elements if elements else kernels.residual
    statistics = 4 * elements / shape.width
    trains = kernels.trains_weights and shape.parameters > 0
    gradient = shape.parameters * kernels.new_gradient if trains else 0
    if shape.kind == "layer" or kernels.fused or kernels.compile:
        copies = 2 if shape.kind == "layer" else 1
        output = dtype if not (kernels.autocast and shape.kind == "layer") else FLOAT32
        return tape.op(
            (source,), elements * output, saves=(source,), extra_saved=copies * statistics, weight_gradient=gradient, trains=trains,
            cheap=True,
        )  # fmt: skip
    wide = source
    if dtype < FLOAT32:
        wide = tape.op((source,), elements * FLOAT32)
    scaled = tape.op(
        (wide,), elements * FLOAT32, saves=(wide,), extra_saved=statistics,
        forward_work=elements * FLOAT32, backward_work=2 * elements * FLOAT32,
    )  # fmt: skip
    narrow = tape.op((scaled,), elements * dtype) if dtype < FLOAT32 else scaled
    if not shape.parameters:
        return narrow
    return tape.op((narrow,), elements * dtype, saves=(narrow,) if trains else (), weight_gradient=gradient, trains=trains,
                   backward_work=elements * (dtype + COLUMN_SUM_BYTES) if trains else 0)  # fmt: skip


def linear(tape: Tape, kernels: Kernels, source: int, shape: Linear, tokens: float | None = None) -> int:
    """A matrix product: keeps its input where its weight trains, dequantizes where it is quantized, carries adapters.

    Under autocast the input is copied to the compute dtype (once per product: autocast caches weights only).
    """
    tokens = kernels.tokens if tokens is None else tokens
    compute = kernels.compute
    stacked = shape.stacked and kernels.stacks_experts
    quantized = kernels.quantized and not stacked
    trains = kernels.trains_weights
    given = source
    if tape.size(source) > tokens * shape.inputs * compute:
        given = tape.op((source,), tokens * shape.inputs * compute)
    work = float(shape.inputs * shape.outputs * compute) if quantized else 0.0
    keeps = (given,) if trains or (quantized and kernels.quantized_keeps_input) else ()
    output = tape.op(
        (given,), tokens * shape.outputs * compute, saves=keeps,
        forward_work=work, backward_work=work + (shape.parameters * kernels.gradient_work if trains else 0),
        weight_gradient=shape.parameters * kernels.new_gradient if trains else 0, trains=trains,
    )  # fmt: skip
    adapter = kernels.adapter
    if adapter is not None and shape.name in adapter.targets and not stacked:
        return _adapted(tape, kernels, adapter, source, given, output, shape, tokens)
    return output


def _adapted(
    tape: Tape, kernels: Kernels, adapter: AdapterKernels, source: int, given: int, output: int, shape: Linear, tokens: float
) -> int:
    """output + scaling * B(A(dropout(x))): keeps the input of A (cast and dropped out) and of B.

    dora adds the norm of the merged column (no gradient through it) and keeps the product before the magnitude; ia3 scales.
    """
    if adapter.kind == "ia3":
        return tape.op((output,), tape.size(output), saves=(output,), backward_work=tape.size(output))
    if adapter.kind not in ("lora", "qlora", "dora"):
        return output
    width = adapter.element_bytes
    inner = kernels.compute if kernels.autocast else width
    small_gradient = adapter.rank * (shape.inputs + shape.outputs) * adapter.new_gradient
    if kernels.fused and kernels.quantized:  # one kernel for base and adapter: keeps its input, and what dropout left of it
        dropped = (tape.tensor(tokens * shape.inputs * kernels.compute),) if adapter.dropout else ()
        return tape.op((given, output), tape.size(output), saves=(given, *dropped), weight_gradient=small_gradient, trains=True, view=True)
    entry = source
    elements = tokens * shape.inputs
    if adapter.casts_input and tape.size(entry) != elements * width:
        entry = tape.op((entry,), elements * width)
    if adapter.dropout:
        entry = tape.op((entry,), tape.size(entry), extra_saved=elements)
    if kernels.autocast and tape.size(entry) != elements * kernels.compute:
        entry = tape.op((entry,), elements * kernels.compute)
    low = tape.op((entry,), tokens * adapter.rank * inner, saves=(entry,), trains=True, weight_gradient=adapter.rank * shape.inputs * adapter.new_gradient)
    high = tape.op((low,), tokens * shape.outputs * inner, saves=(low,), trains=True, weight_gradient=adapter.rank * shape.outputs * adapter.new_gradient)
    scaled = tape.op((high,), tape.size(high))
    total = max(tape.size(output), tape.size(scaled))
    if adapter.kind == "dora":
        scaled = tape.op((scaled,), total, saves=(scaled,), forward_work=shape.inputs * shape.outputs * width)
    joined = tape.op((output, scaled), total, view=total == tape.size(output))
    if total != tape.size(output):
        joined = tape.op((joined,), tape.size(output))
    return joined


def activation(tape: Tape, source: int, name: str) -> int:
    """torch's fused activations keep their input (relu: its output); those written out in Python keep four tensors."""
    size = tape.size(source)
    if name in _COMPOSITE_ACTIVATIONS:
        half = tape.op((source,), size)
        inner = tape.op((source,), size, saves=(source,), forward_work=size, backward_work=size)
        tanh = tape.op((inner,), size, saves_output=True)
        shifted = tape.op((tanh,), size)
        return tape.op((half, shifted), size, saves=(half, shifted))
    if name in ("relu", "relu6"):
        return tape.op((source,), size, saves_output=True)
    if name in ("relu2", "relu_squared"):
        positive = tape.op((source,), size, saves_output=True)
        return tape.op((positive,), size, saves=(positive,), backward_work=size)
    return tape.op((source,), size, saves=(source,), cheap=True)


def product(tape: Tape, left: int, right: int) -> int:
    """An elementwise product keeps both factors."""
    return tape.op((left, right), max(tape.size(left), tape.size(right)), saves=(left, right), cheap=True)


def add(tape: Tape, residual: int, branch: int) -> int:
    """The residual sum keeps nothing; its gradient is passed on as it is."""
    return tape.op((residual, branch), max(tape.size(residual), tape.size(branch)), view=True)
