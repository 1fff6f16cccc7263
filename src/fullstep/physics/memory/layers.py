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
    rms_float32: the scale comes before the way back. layer: keeps its input and two statistics per row of it.
    """
    elements = kernels.tokens * (width if width is not None else shape.width)
    dtype = tape.size(source) / elements
    statistics = FLOAT32 * elements / shape.width
    trains = kernels.trains_weights and shape.parameters > 0
    gradient = shape.parameters * kernels.new_gradient if trains else 0
    column_sums = COLUMN_SUM_BYTES * elements if trains else 0
    if shape.kind == "layer" or kernels.fused or kernels.compile:
        read = source
        if shape.kind == "layer" and kernels.autocast and dtype < FLOAT32:  # on autocast's float32 list
            read = tape.op((source,), elements * FLOAT32)
        return tape.op(
            (read,), tape.size(read), saves=(read,), extra_saved=(2 if shape.kind == "layer" else 1) * statistics,
            weight_gradient=gradient, trains=trains, cheap=True, backward_work=column_sums if shape.kind == "layer" else 0,
        )  # fmt: skip
    wide = source if dtype == FLOAT32 else tape.op((source,), elements * FLOAT32)
    scaled = tape.op(
        (wide,), elements * FLOAT32, saves=(wide,), extra_saved=statistics,
        forward_work=elements * FLOAT32, backward_work=2 * elements * FLOAT32,
    )  # fmt: skip
    if shape.kind == "rms" and dtype < FLOAT32:
        scaled = tape.op((scaled,), elements * dtype)
    if shape.parameters:
        scaled = tape.op(
            (scaled,), tape.size(scaled), saves=(scaled,) if trains else (), weight_gradient=gradient, trains=trains,
            backward_work=tape.size(scaled) + column_sums if trains else 0,
        )  # fmt: skip
    return scaled if tape.size(scaled) == elements * dtype else tape.op((scaled,), elements * dtype)


def linear(tape: Tape, kernels: Kernels, source: int, shape: Linear, tokens: float | None = None) -> int:
    """A matrix product: keeps its input where its weight trains, dequantizes where it is quantized, carries adapters.

    Under autocast the input is copied to the compute dtype (once per product: autocast caches weights only).
    """
    tokens = kernels.tokens if tokens is None else tokens
    stacked = shape.stacked and kernels.stacks_experts
    compute = kernels.stored if stacked and shape.copies > 1 else kernels.compute  # grouped products are not on autocast's list
    quantized = kernels.quantized and not stacked
    trains = kernels.trains_weights
    source = _scaled_input(tape, kernels, source, shape, tokens)
    given = source
    if tape.size(source) != tokens * shape.inputs * compute:
        given = tape.op((source,), tokens * shape.inputs * compute)
    work = float(shape.inputs * shape.outputs * compute) if quantized else 0.0
    keeps = (given,) if trains or (quantized and kernels.quantized_keeps_input) else ()
    returned = tape.size(source) / (tokens * shape.inputs) if quantized else compute  # 4-bit layers give back their input's dtype
    output = tape.op(
        (given,), tokens * shape.outputs * returned, saves=keeps,
        forward_work=work, backward_work=work + (shape.parameters * kernels.gradient_work if trains else 0),
        weight_gradient=shape.parameters * kernels.new_gradient if trains else 0, trains=trains,
    )  # fmt: skip
    adapter = kernels.adapter
    if adapter is not None and shape.name in adapter.targets and not stacked:
        return _adapted(tape, kernels, adapter, source, given, output, shape, tokens)
    return output


def _scaled_input(tape: Tape, kernels: Kernels, source: int, shape: Linear, tokens: float) -> int:
    """ia3 on the feed-forward's last product scales its input, in the adapter's dtype (kept), and casts back."""
    adapter = kernels.adapter
    if adapter is None or adapter.kind != "ia3" or shape.name not in adapter.targets or shape.role != "down":
        return source
    size = tokens * shape.inputs * adapter.element_bytes
    wide = source if tape.size(source) == size else tape.op((source,), size)
    scaled = tape.op((wide,), size, saves=(wide,), trains=True)
    return scaled if size == tape.size(source) else tape.op((scaled,), tape.size(source))


def _adapted(
    tape: Tape, kernels: Kernels, adapter: AdapterKernels, source: int, given: int, output: int, shape: Linear, tokens: float
) -> int:
    """output + scaling * B(A(dropout(x))): keeps the input of A (cast and dropped out) and of B.

    ia3 scales the output, or the input of the feed-forward's last product. dora: see :func:`_magnitude`.
    """
    if adapter.kind == "ia3" and shape.role == "down":
        return output
    if adapter.kind == "ia3":
        wide = tape.op((output,), tokens * shape.outputs * adapter.element_bytes, saves=(output,), trains=True)
        return tape.op((wide,), tape.size(output))
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
    if adapter.kind == "dora":
        scaled = _magnitude(tape, adapter, output, scaled, shape, tokens * shape.outputs)
    total = max(tape.size(output), tape.size(scaled))
    joined = tape.op((output, scaled), total, view=total == tape.size(output))
    return joined if total == tape.size(output) else tape.op((joined,), tape.size(output))


def _magnitude(tape: Tape, adapter: AdapterKernels, output: int, scaled: int, shape: Linear, elements: float) -> int:
    """dora: (m - 1) * W x + m * B A x with the magnitude m over the merged column norm; both products are kept for m's gradient."""
    wide = max(tape.size(scaled), elements * adapter.element_bytes)
    merged = float(shape.inputs * shape.outputs * adapter.element_bytes)
    base = tape.op((output,), wide, saves=(output,), trains=True, forward_work=2 * merged)
    low = tape.op((scaled,), wide, saves=(scaled,), trains=True)
    return tape.op((base, low), wide, view=True)


def activation(tape: Tape, kernels: Kernels, source: int, name: str) -> int:
    """torch's fused activations keep their input (relu: its output); those written out in Python keep five tensors.

    Under autocast the power in them, and what follows it, is float32.
    """
    size = tape.size(source)
    if name in _COMPOSITE_ACTIVATIONS:
        wide = size * FLOAT32 / kernels.compute if kernels.autocast else size
        cube = source if wide == size else tape.op((source,), wide)
        half = tape.op((source,), size)
        inner = tape.op((cube,), wide, saves=(cube,), forward_work=wide, backward_work=wide)
        tanh = tape.op((inner,), wide, saves_output=True)
        shifted = tape.op((tanh,), wide)
        return tape.op((half, shifted), wide, saves=(half, shifted))
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
