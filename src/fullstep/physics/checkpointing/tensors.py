"""The tensors that a checkpoint holds, one by one: containers add bytes to each, and ranks cut each along its rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from fullstep.job import Job, Method
from fullstep.models import Block, Linear, ModelShape
from fullstep.models.shape import Norm
from fullstep.physics.memory.weights import ADAPTER_KINDS_ON_LINEARS, whole_module_elements


class Tensors(NamedTuple):
    """Equal tensors."""

    rows: int
    """of the first dimension, along which ranks divide it"""
    elements: int
    """of one"""
    copies: int


def trained_tensors(job: Job) -> tuple[Tensors, ...]:
    """What trains, tensor by tensor: weights, or adapters and the modules beside them.

    Example: Llama-3.1-8B has ``32 * (7 linears + 2 norms) + 3`` = 291.

    Valid:
        embeddings' own norms, attention sinks and the like count as one tensor each where a model has several
    """
    return _trained(job.shape, job.method)


def stored_tensors(job: Job) -> tuple[Tensors, ...]:
    """The model's own tensors, whether they train or not."""
    return _model(job.shape)


def tensors_in_order(shape: ModelShape) -> Iterator[tuple[Linear | None, Tensors]]:
    """The model's own tensors as its modules follow one another, matrices with the linear that they are of."""
    words = max(1, shape.vocabulary)
    yield None, Tensors(words, shape.embedding_parameters, 1)
    for elements in (shape.position_parameters, shape.embedding_other_parameters):
        yield None, Tensors(shape.hidden, elements, 1)
    for block in (shape.blocks[index] for index in shape.layers):
        for linear in block.linears:
            yield linear, _matrix(linear)
            if linear.bias:
                yield None, Tensors(linear.outputs, linear.copies * linear.outputs, 1)
        yield from ((None, each) for each in _other_tensors(block))
    yield None, Tensors(shape.hidden, shape.final_other_parameters, 1)
    if shape.final_norm is not None:
        yield from ((None, each) for each in _norm_tensors(shape.final_norm))
    bias = words if shape.head_bias and shape.head_parameters else 0
    yield None, Tensors(words, shape.head_parameters - bias, 1)
    yield None, Tensors(words, bias, 1)


def largest_elements(tensors: tuple[Tensors, ...]) -> int:
    """Elements of the largest one."""
    return max((each.elements for each in tensors), default=0)


def pieces(tensors: tuple[Tensors, ...], ranks: int) -> int:
    """Pieces that are written of them: each is cut along its rows among the ranks; those without a row write one empty piece together.

    Example: 21 tensors of a Llama of width 128 on 2 ranks: 42. A LoRA matrix of 16 rows on 12 ranks: 8 ranks with 2 rows, one empty.

    Args:
        tensors: to be written
        ranks: among which each is divided

    Source:
        torch.distributed.tensor, Shard: ceil(rows / ranks) rows a rank; DefaultSavePlanner drops pieces at one offset but one

    >>> pieces((Tensors(16, 65_536, 1),), 12), pieces((Tensors(128, 128, 21),), 2)
    (9, 42)
    """
    return sum(each.copies * _pieces(each.rows, ranks) for each in tensors)


def _pieces(rows: int, ranks: int) -> int:
    if ranks <= 1:
        return 1
    filled = -(-rows // -(-rows // ranks))
    return filled + int(filled < ranks)


def counted(tensors: tuple[Tensors, ...]) -> int:
    """How many there are."""
    return sum(each.copies for each in tensors)


@lru_cache(maxsize=256)
def _trained(shape: ModelShape, method: Method) -> tuple[Tensors, ...]:
    if method.kind == "full":
        return _model(shape)
    found = [_module(shape, name) for name in method.train_modules]
    if method.kind == "prefix_tuning":  # one embedding: a row per virtual token
        width = sum(2 * block.attention.key_value_heads * block.attention.head_dim for block in (shape.blocks[i] for i in shape.layers))
        found.append(Tensors(method.rank, method.rank * width, 1))
    elif method.kind == "bottleneck":
        hidden, rank, places = shape.hidden, method.rank, 2 * len(shape.layers)
        found += [Tensors(rank, rank * hidden, places), Tensors(hidden, rank * hidden, places)]
        found += [Tensors(rank, rank, places), Tensors(hidden, hidden, places)]
    else:
        linears = [linear for index in shape.layers for linear in shape.blocks[index].linears]
        found += [each for linear in linears for each in _adapter_tensors(linear, method)]
    return _merged(found)


def _module(shape: ModelShape, name: str) -> Tensors:
    elements = whole_module_elements(shape, name)
    return Tensors(min(shape.vocabulary, elements), elements, 1)


def _adapter_tensors(linear: Linear, method: Method) -> Iterator[Tensors]:
    """A pair of matrices per module, and dora's magnitude; ia3: a vector. Gate and up of experts are two modules."""
    if linear.adapter_target not in method.targets:
        return
    if method.kind == "ia3":
        length = linear.inputs if linear.role in ("down", "shared_down") else linear.outputs
        yield Tensors(length, length, linear.copies)
    if method.kind not in ADAPTER_KINDS_ON_LINEARS:
        return
    joined = 2 if linear.is_joined_experts else 1
    copies, rank = linear.copies, method.rank
    if method.stacked_experts and linear.stacked:
        rank *= joined * copies
        yield Tensors(rank, rank * linear.inputs, 1)
        yield Tensors(linear.outputs, rank * linear.outputs, 1)
    else:
        yield Tensors(rank, rank * linear.inputs, copies * joined)
        yield Tensors(linear.outputs // joined, rank * (linear.outputs // joined), copies * joined)
    if method.kind == "dora":
        yield Tensors(linear.outputs, linear.outputs, copies)


@lru_cache(maxsize=256)
def _model(shape: ModelShape) -> tuple[Tensors, ...]:
    return _merged([each for _, each in tensors_in_order(shape)])


def _matrix(linear: Linear) -> Tensors:
    if linear.stacked:
        return Tensors(linear.copies if linear.copies > 1 else linear.outputs, linear.weight_elements, 1)
    return Tensors(linear.outputs, linear.inputs * linear.outputs, linear.copies)


def _other_tensors(block: Block) -> Iterator[Tensors]:
    for norm in block.norms:
        yield from _norm_tensors(norm)
    yield Tensors(block.other_parameters, block.other_parameters, 1)


def _norm_tensors(norm: Norm) -> list[Tensors]:
    """A scale; and where there are twice as many parameters as it is wide, a shift."""
    parts = 2 if norm.parameters == 2 * norm.width else 1
    return [Tensors(norm.parameters // parts, norm.parameters // parts, parts)]


def _merged(found: list[Tensors]) -> tuple[Tensors, ...]:
    """Equal ones counted together, empty ones left out."""
    counts: dict[tuple[int, int], int] = {}
    for each in found:
        if each.elements:
            counts[each.rows, each.elements] = counts.get((each.rows, each.elements), 0) + each.copies
    return tuple(Tensors(rows, elements, count) for (rows, elements), count in counts.items())
