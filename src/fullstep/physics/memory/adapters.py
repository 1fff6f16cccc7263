"""What adapters add to the operations of a block, as peft writes them.

Source: peft 0.21 tuners/lora/layer.py, lora/bnb.py, lora/dora.py, ia3/layer.py; the fused kernels: fms_acceleration_foak.
"""

from __future__ import annotations

from dataclasses import replace

from fullstep.models import Linear
from fullstep.physics.memory.kernels import FLOAT32, AdapterKernels, Kernels, column_sum_bytes
from fullstep.physics.memory.tape import Tape


def scaled_input(tape: Tape, kernels: Kernels, source: int, shape: Linear, tokens: float) -> int:
    """ia3 on the feed-forward's last product: scales the input in the adapter's dtype, keeps it, and casts back.

    Kept: ``tokens * inputs * element_bytes`` [bytes]; elsewhere the input is passed on. Over a packed layer nothing is cast back: what is
    kept is the input, in float32 unless autocast is on, and the layer reads the product in the wider dtype of the two.

    Source:
        peft 0.21, tuners/ia3/layer.py and tuners/ia3/bnb.py, is_feedforward
    """
    adapter = kernels.adapter
    if adapter is None or adapter.kind != "ia3" or shape.name not in adapter.targets:
        return source
    if kernels.quantized and not kernels.autocast and tape.size(source) < tokens * shape.inputs * FLOAT32:
        source = tape.op((source,), tokens * shape.inputs * FLOAT32)
    if shape.role != "down":
        return source
    size = tokens * shape.inputs * adapter.element_bytes
    if kernels.quantized:
        return _scaled(tape, source, max(size, tape.size(source)), tokens * shape.inputs)
    wide = source if tape.size(source) == size else tape.op((source,), size)
    scaled = _scaled(tape, wide, size, tokens * shape.inputs)
    return scaled if size == tape.size(source) else tape.op((scaled,), tape.size(source))


def adapted(tape: Tape, kernels: Kernels, tensors: tuple[int, int, int], shape: Linear, tokens: float) -> int:
    """A linear's output with its adapter added.

    lora: ``y + scaling * B(A(dropout(x)))``. Kept per token: A's input (``inputs`` elements; cast to the adapter's dtype, under autocast
    back to 16 bits) and B's input (``rank`` elements), with dropout one byte per input element. dora keeps both products besides.
    ia3 scales the output, keeps it and casts back, but not over a packed layer; on the feed-forward's last product see ``scaled_input``.

    Example: rank 16 on 4096 inputs in 16 bits under autocast keeps ``2 * (4096 + 16) = 8,224`` bytes per token.

    Args:
        tape: the block so far
        kernels: with an adapter
        tensors: the layer's input, the same as the product reads it, and the product's output
        shape: the linear
        tokens: rows of the product

    Returns:
        the tensor that the next layer reads

    Source:
        peft 0.21, tuners/lora/layer.py, lora/bnb.py, lora/dora.py, ia3/layer.py; fused kernels: fms_acceleration_foak

    Valid:
        equal to traces of the real classes to the byte, but for 16-bit copies of the adapters themselves (below 0.1 %)
    """
    source, given, output = tensors
    adapter = kernels.adapter
    assert adapter is not None
    if adapter.kind == "ia3":
        return _scaled_output(tape, kernels, output, shape, tokens)
    if adapter.kind not in ("lora", "qlora", "dora"):
        return output
    if kernels.fused and kernels.quantized:  # one kernel for base and adapter: keeps its input, and what dropout left of it
        gradient = shape.copies * adapter.rank * (shape.inputs + shape.outputs) * adapter.new_gradient
        dropped = (tape.tensor(tokens * shape.inputs * kernels.compute),) if adapter.dropout else ()
        return tape.op((given, output), tape.size(output), saves=(given, *dropped), weight_gradient=gradient, trains=True, view=True)
    modules = [replace(shape, outputs=shape.outputs // 2)] * 2 if shape.is_joined_experts else [shape]
    scaled = [_low_rank(tape, kernels, source, module, tokens) for module in modules]
    if adapter.kind == "dora":
        scaled = [_magnitude(tape, kernels, (output, scaled[0]), shape, tokens)]
    total = max(tape.size(output), sum(tape.size(part) for part in scaled))
    joined = tape.op((output, *scaled), total, view=total == tape.size(output))
    return joined if total == tape.size(output) else tape.op((joined,), tape.size(output))


def _scaled(tape: Tape, source: int, size: float, elements: float) -> int:
    """Times a vector that trains: its gradient is a product of the same size, summed over the rows once the incoming one is gone."""
    return tape.op((source,), size, saves=(source,), trains=True, backward_work=max(size, column_sum_bytes(elements)))


def _scaled_output(tape: Tape, kernels: Kernels, output: int, shape: Linear, tokens: float) -> int:
    """Cast back to the product's dtype; over a packed layer it stays as wide as it is, and is cloned."""
    assert kernels.adapter is not None
    if shape.role != "down":
        size = tokens * shape.outputs * kernels.adapter.element_bytes
        wide = _scaled(tape, output, max(size, tape.size(output)), tokens * shape.outputs)
        output = wide if kernels.quantized else tape.op((wide,), tape.size(output))
    return tape.op((output,), tape.size(output)) if kernels.quantized else output


def padded_adapter(tape: Tape, kernels: Kernels, tensors: tuple[int, int], sides: tuple[int, tuple[int, ...]]) -> int:
    """litgpt's adapter of the joined query-key-value projection: one dropout and one A for all parts, B's output padded with zeros.

    Kept per token: A's input and dropout's byte per element, once for all parts; and, where a part has no adapter, B's output, which
    ``index_copy`` keeps to know its size.

    Args:
        tape: the block so far
        kernels: with a low-rank adapter
        tensors: the projection's input and output
        sides: features of its input, and of those parts of its output that have an adapter

    Returns:
        the output with the adapter added

    Source:
        litgpt 0.5.7, litgpt/lora.py, LoRAQKVLinear.forward and zero_pad; derivatives.yaml of torch 2.13, index_copy

    Valid:
        equal to the saved tensors of the real class on Llama-2-7B, but for 96 KiB per block that do not grow with the rows (an index, norm
            weights in float32). Of a fused target only queries and values are adapted, as lora_query, lora_key and lora_value default
    """
    (source, output), (inputs, adapted) = tensors, sides
    adapter = kernels.adapter
    assert adapter is not None
    inner = kernels.compute if kernels.autocast else adapter.element_bytes
    rank, elements = adapter.rank * len(adapted), kernels.tokens * inputs
    entry = source if tape.size(source) == elements * inner else tape.op((source,), elements * inner)
    if adapter.dropout:
        entry = tape.op((entry,), tape.size(entry), extra_saved=elements)
    gradient = rank * inputs * adapter.new_gradient
    low = tape.op((entry,), kernels.tokens * rank * inner, saves=(entry,), trains=True, weight_gradient=gradient)
    gradient = adapter.rank * sum(adapted) * adapter.new_gradient
    high = tape.op((low,), kernels.tokens * sum(adapted) * inner, saves=(low,), trains=True, weight_gradient=gradient)
    if tape.size(high) < tape.size(output):
        high = tape.op((high,), tape.size(output), saves=(high,), forward_work=tape.size(output))
    scaled = tape.op((high,), tape.size(high))
    return tape.op((output, scaled), tape.size(output), view=True)


def changed_parameter(tape: Tape, kernels: Kernels, shape: Linear) -> int:
    """A parameter plus its adapter's product, made whole: what peft does to stacked experts and to routers that are no modules.

    Kept until backward: the sum, ``copies * inputs * outputs * stored``, and the factors in the parameter's dtype. In backward the whole
    parameter has a gradient for a moment.

    Args:
        tape: the block so far
        kernels: with a low-rank adapter
        shape: the parameter

    Returns:
        the sum

    Source:
        peft 0.21, tuners/lora/layer.py, ParamWrapper

    Valid:
        within 0.3 % of traces of mixtral, qwen3_moe, deepseek_v2 and deepseek_v3
    """
    adapter = kernels.adapter
    assert adapter is not None
    rank = adapter.rank * (2 if shape.is_joined_experts else 1)
    elements = shape.copies * rank * (shape.inputs + shape.outputs)
    factors = float(elements * kernels.stored) if kernels.stored != adapter.element_bytes else 0.0
    return tape.op(
        (), float(shape.weight_elements * kernels.stored), extra_saved=factors, trains=True,
        backward_work=elements * kernels.stored, weight_gradient=elements * adapter.new_gradient,
    )  # fmt: skip


def _low_rank(tape: Tape, kernels: Kernels, source: int, shape: Linear, tokens: float) -> int:
    """scaling * B(A(dropout(x))) : keeps the inputs of A and of B, and dropout's mask of one byte per element."""
    adapter = kernels.adapter
    assert adapter is not None
    inner = kernels.compute if kernels.autocast else adapter.element_bytes
    elements = tokens * shape.inputs
    entry = source
    if adapter.casts_input and tape.size(entry) != elements * adapter.element_bytes:
        entry = tape.op((entry,), elements * adapter.element_bytes)
    if adapter.dropout:
        entry = tape.op((entry,), tape.size(entry), extra_saved=elements)
    if kernels.autocast and tape.size(entry) != elements * kernels.compute:
        entry = tape.op((entry,), elements * kernels.compute)
    low = tape.op(
        (entry,), tokens * adapter.rank * inner, saves=(entry,), trains=True,
        weight_gradient=shape.copies * adapter.rank * shape.inputs * adapter.new_gradient,
    )  # fmt: skip
    high = tape.op(
        (low,), tokens * shape.outputs * inner, saves=(low,), trains=True,
        weight_gradient=shape.copies * adapter.rank * shape.outputs * adapter.new_gradient,
    )  # fmt: skip
    return tape.op((high,), tape.size(high))


def _magnitude(tape: Tape, kernels: Kernels, products: tuple[int, int], shape: Linear, tokens: float) -> int:
    """dora: (m - 1) * W x + m * B A x with the magnitude m over the merged column norm; both products are kept for m's gradient."""
    output, scaled = products
    adapter = kernels.adapter
    assert adapter is not None
    wide = max(tape.size(scaled), tokens * shape.outputs * adapter.element_bytes)
    work, unsaved = _merging(kernels, adapter, shape)
    base = tape.op((output,), wide, saves=(output,), trains=True, forward_work=work, unsaved_work=unsaved)
    low = tape.op((scaled,), wide, saves=(scaled,), trains=True)
    return tape.op((base, low), wide, view=True)


def _merging(kernels: Kernels, adapter: AdapterKernels, shape: Linear) -> tuple[float, float]:
    """Bytes that dora's column norm takes for a moment: (with what A keeps of its input, without).

    B A is made as ``B(A(identity))``, an identity of inputs x inputs, under autocast with its 16-bit copy, which A keeps until the norm
    is done. The norm needs B A, the weight in the adapter's dtype, the scaled product and the sum.
    Source: peft 0.21, tuners/lora/dora.py, get_lora_weight and get_weight_norm.
    """
    wide = adapter.element_bytes
    inner = kernels.compute if kernels.autocast else wide
    identity, merged = float(shape.inputs**2), float(shape.inputs * shape.outputs)
    copied = inner if inner != wide else 0
    making = identity * (wide + copied)
    norm = merged * (3 * wide + copied + (wide if kernels.stored != wide or kernels.quantized else 0))
    return max(making, norm + identity * inner), max(making, norm)


def bottleneck(tape: Tape, kernels: Kernels, source: int, hidden: int) -> int:
    """A bottleneck adapter after a sublayer: ``x + U(f(D(x)))``.

    Kept: the input in the adapter's dtype and both narrow tensors, ``tokens * (hidden + 2 * rank) * element_bytes`` [bytes].

    Args:
        tape: the block so far
        kernels: without a bottleneck adapter nothing is added
        source: the sublayer's output
        hidden: its width [elements]

    Returns:
        the sum, in the dtype of the stream

    Source:
        Houlsby et al. 2019, Parameter-Efficient Transfer Learning for NLP, figure 2

    Valid:
        by derivation; not compared with a trace
    """
    adapter = kernels.adapter
    if adapter is None or adapter.kind != "bottleneck":
        return source
    inner = kernels.compute if kernels.autocast else adapter.element_bytes
    size = kernels.tokens * hidden * inner
    entry = source if tape.size(source) == size else tape.op((source,), size)
    narrow, wide = ((inputs + 1) * outputs * adapter.new_gradient for inputs, outputs in ((hidden, adapter.rank), (adapter.rank, hidden)))
    low = tape.op((entry,), kernels.tokens * adapter.rank * inner, saves=(entry,), trains=True, weight_gradient=narrow)
    active = tape.op((low,), tape.size(low), saves=(low,))
    high = tape.op((active,), size, saves=(active,), trains=True, weight_gradient=wide)
    back = high if tape.size(source) == size else tape.op((high,), tape.size(source))
    return tape.op((source, back), tape.size(source), view=True)
