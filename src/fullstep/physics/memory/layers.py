"""The operations of a decoder block as transformers writes them, each with what it keeps for backward.

Every function appends to a tape and returns the tensor that it made. Widths are elements per token.
Source of each rule: the modelling code of transformers 4.45 to 5.23 and torch's derivatives.yaml; the saved bytes of a
llama block, 20 h + 4 kv + 8 f + 4 heads + 8 per token in bfloat16, follow from them and equal what a trace of the real class finds.
"""

from __future__ import annotations

from fullstep.models import Linear, Norm
from fullstep.physics.memory.adapters import adapted, changed_parameter, scaled_input
from fullstep.physics.memory.cut import COLUMNS, ROWS
from fullstep.physics.memory.kernels import FLOAT32, Kernels, column_sum_bytes
from fullstep.physics.memory.tape import Tape

_COMPOSITE_ACTIVATIONS = frozenset({"gelu_new", "gelu_fast", "quick_gelu", "gelu_accurate"})


def norm(tape: Tape, kernels: Kernels, source: int, shape: Norm, width: int | None = None) -> int:
    """Root-mean-square norm step by step in float32, or torch's layer norm. Kept per element [bytes]:

    rms: ``4`` (float32 copy) ``+ 2`` (normalised, in x's dtype; only where the scale trains). rms_float32: ``4 + 4``: the scale comes
    before the way back. layer: the input alone (float32 under autocast). A float32 input needs no copy. Statistics: 4 per row and value.

    Example: 4096 wide, bfloat16, trained: ``6 * 4096 + 4 = 24,580`` bytes per token.

    Args:
        tape: the block so far
        kernels: dtype, whether weights train
        source: the input
        shape: kind, width of one row, parameters
        width: of all rows of a token together where that is more (norms per head) [elements]

    Returns:
        the normed tensor in the input's dtype

    Source:
        transformers 5.23, LlamaRMSNorm and GemmaRMSNorm; torch's native_layer_norm

    Valid:
        to the byte on traces; sums over rows for the scale's gradient go through two float32 buffers (``column_sum_bytes``), an upper bound
    """
    elements = kernels.tokens * (width if width is not None else shape.width)
    dtype = tape.size(source) / elements
    statistics = FLOAT32 * elements / shape.width
    trains = kernels.trains_weights and shape.parameters > 0
    gradient = shape.parameters * kernels.new_gradient if trains else 0
    column_sums = column_sum_bytes(elements) if trains else 0
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
        forward_work=elements * FLOAT32, backward_work=3 * elements * FLOAT32,
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

    Kept: ``tokens * inputs * compute`` [bytes]. Under autocast the input is copied to the compute dtype (once per product: autocast
    caches weights only). A 4-bit weight is made whole, ``inputs * outputs * compute`` [bytes], in forward and again in backward.
    Over tensor ranks a column-cut product's input gradient is summed into a tensor of its own.
    Grouped products of stacked experts run in the weights' own dtype, and so does their weights' gradient, which then needs no copy.

    Args:
        tape: the block so far
        kernels: dtypes, what trains, quantization, adapter
        source: the input
        shape: inputs, outputs, bias, copies
        tokens: rows of the product; those of the micro-batch unless stated

    Returns:
        the product, with its adapter's share

    Source:
        torch's derivatives.yaml (mm, addmm, _grouped_mm), torch.autocast; bitsandbytes, MatMul4Bit

    Valid:
        to the byte on traces
    """
    tokens = kernels.tokens if tokens is None else tokens
    stacked = shape.stacked and kernels.stacks_experts
    compute = kernels.stored if stacked and shape.copies > 1 else kernels.compute  # grouped products are not on autocast's list
    quantized = kernels.quantized and not stacked
    adapts = kernels.adapter is not None and shape.adapter_target in kernels.adapter.targets
    trains = kernels.trains_weights
    regroups = shape.role in kernels.gathered_roles
    if regroups and shape.role in ROWS:
        source = tape.op((source,), tape.size(source) / kernels.tensor)
    source = scaled_input(tape, kernels, source, shape, tokens)
    given = source
    if tape.size(source) != tokens * shape.inputs * compute:
        given = tape.op((source,), tokens * shape.inputs * compute)
    if stacked and adapts:
        weight = changed_parameter(tape, kernels, shape)
        return tape.op((given, weight), tokens * shape.outputs * compute, saves=(given, weight))
    work = float(shape.inputs * shape.outputs * compute) if quantized else 0.0
    keeps = (given,) if trains or (quantized and kernels.quantized_keeps_input) else ()
    returned = tape.size(source) / (tokens * shape.inputs) if quantized else compute  # 4-bit layers give back their input's dtype
    summing = tokens * shape.inputs * compute if kernels.tensor > 1 and shape.role in COLUMNS and not kernels.sequence_parallel else 0
    besides = kernels.gradient_work if compute == kernels.compute else max(0, kernels.gradient_work - kernels.compute)
    output = tape.op(
        (given,), tokens * shape.outputs * returned, saves=keeps,
        forward_work=work, backward_work=work + summing + (shape.parameters * besides if trains else 0),
        weight_gradient=shape.parameters * kernels.new_gradient if trains else 0, trains=trains,
    )  # fmt: skip
    if adapts:
        output = adapted(tape, kernels, (source, given, output), shape, tokens)
    if regroups and shape.role in COLUMNS:
        size = tape.size(output) * kernels.tensor
        return tape.op((output,), size, forward_work=size)
    return output


def gathered(tape: Tape, kernels: Kernels, source: int) -> int:
    """Before a column-cut product under sequence parallelism: the whole row put together from all tensor ranks.

    ``tensor`` times the part. torchtitan keeps it for backward as the product's input; Megatron keeps the part and gathers again.

    Source:
        Korthikanti et al. 2022, section 4.2.2; torchtitan, PrepareModuleInput; Megatron-LM, core/tensor_parallel/layers.py
        LinearWithGradAccumulationAndAsyncCommunication
    """
    if not kernels.sequence_parallel:
        return source
    return tape.op((source,), tape.size(source) * kernels.tensor, made_again=kernels.gathers_again)


def summed(tape: Tape, kernels: Kernels, source: int) -> int:
    """After a row-cut product: the sum over all tensor ranks, whole, or under sequence parallelism this rank's part of the row.

    The sum is a tensor of its own beside the summands; its gradient is passed on as it is.

    Source:
        Shoeybi et al. 2019, section 3; torch, distributed/_functional_collectives.py (not in place)
    """
    if kernels.tensor == 1:
        return source
    if kernels.sequence_parallel:
        return tape.op((source,), tape.size(source) / kernels.tensor)
    return tape.op((source,), tape.size(source), view=True)


def activation(tape: Tape, kernels: Kernels, source: int, name: str, elements: float | None = None) -> int:
    """torch's fused activations keep their input (relu: its output); those written out in Python keep more.

    gelu_new keeps four: its input (for the cube), half of it, tanh, and tanh + 1; the next product keeps its output besides. Under
    autocast the power in it, and what follows it, is float32. ``elements``: of the input, which 4-bit layers may give in float32 already;
    None: as many as it has in the compute dtype.

    Source:
        transformers, activations.py NewGELUActivation; torch's derivatives.yaml (silu, gelu, threshold)
    """
    size = tape.size(source)
    if name in _COMPOSITE_ACTIVATIONS:
        wide = (size / kernels.compute if elements is None else elements) * FLOAT32 if kernels.autocast else size
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
