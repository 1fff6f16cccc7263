"""The repeated blocks of a model, and the same model with fewer of the equal ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "decoder_layers", "num_decoder_layers", "num_blocks")
"""names under which configs and classes of transformers state how many blocks there are"""
_NUMBERS = ("layer_idx", "layer_id", "layer_number", "block_idx", "idx", "seed")
"""attributes that say which block it is, and nothing about what it computes"""
_LISTS_OF_NUMBERS = ("layers", "layer_ids", "layer_indices")
"""ends of the names of lists that say which blocks are of a kind"""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The repeated part of a model.

    ``kinds``: of every block of the whole model, equal numbers for equal blocks. ``kept``: the indices of those that are there.
    ``first``, ``length``, ``repeated``: kept blocks from ``first`` on, ``length`` of them, stand for ``repeated`` such stretches more.
    """

    path: str
    """name of the list in the model; empty where none was found"""
    kinds: tuple[int, ...]
    kept: tuple[int, ...]
    first: int = 0
    length: int = 1
    repeated: int = 0
    alone: bool = True
    """False where another list beside it has as many members: a layer is more than its block, and none is left out"""


def find_blocks(model: nn.Module, told_apart: Callable[[int], object] = lambda _: None) -> Blocks:
    """The longest list of modules that is not inside another one, and which of its blocks are equal.

    Args:
        model: of transformers
        told_apart: from a block's number to what the worksheet does with that block
    """
    lists: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) >= 1 and not any(name.startswith(f"{outer}.") for outer in lists):
            lists[name] = module
    if not lists:
        return Blocks("", (), ())
    config = _config_of_language(model)
    stated = {getattr(config, name, None) for name in LAYER_COUNTS}
    path = max(lists, key=lambda name: (len(lists[name]) in stated, sum(p.numel() for p in lists[name].parameters()), len(lists[name])))
    count = len(lists[path])
    known: dict[Any, int] = {}
    kinds = tuple(
        known.setdefault((_signature(block), _stated_of(config, number, count), told_apart(number)), len(known))
        for number, block in enumerate(lists[path])
    )
    parent = path.rpartition(".")[0]
    beside = [name for name, other in lists.items() if name != path and name.rpartition(".")[0] == parent and len(other) == count]
    return Blocks(path, kinds, tuple(range(count)), alone=not beside)


def _config_of_language(model: nn.Module) -> Any:
    config: Any = model.config
    try:
        return config.get_text_config()
    except ValueError:  # it has two of them
        return config


def _stated_of(config: Any, number: int, count: int) -> tuple[Any, ...]:
    """What the config's lists with an entry for each block say of one."""
    lists = [(name, value) for name, value in sorted(vars(config).items()) if isinstance(value, (list, tuple)) and len(value) == count]
    return tuple((name, _plain(value[number])) for name, value in lists)


def _signature(block: nn.Module) -> Any:
    """Equal for blocks that allocate alike: classes, plain attributes, shapes and dtypes of all that they hold."""
    rows = []
    for name, module in block.named_modules():
        plain = tuple(
            (key, _plain(value)) for key, value in sorted(vars(module).items())
            if key not in _NUMBERS and key != "training" and not key.startswith("_")
            and isinstance(value, (int, float, str, bool, type(None), tuple))
        )  # fmt: skip
        held = [*module._parameters.items(), *module._buffers.items()]
        tensors = tuple((key, tuple(tensor.shape), str(tensor.dtype)) for key, tensor in held if tensor is not None)
        rows.append((name, type(module).__name__, plain, tensors))
    return tuple(rows)


def _plain(value: Any) -> Any:
    """What matters of an attribute: of a factor only whether it is nothing, one, or something else, which no shape depends on.

    >>> _plain(0.47) == _plain(0.56), _plain(0.0) == _plain(0.1), _plain("sliding_attention")
    (True, False, 'sliding_attention')
    """
    if isinstance(value, float) and value not in (0.0, 1.0):
        return "a factor"
    return _hashable(value)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def with_fewer(blocks: Blocks, edge: int = 1) -> Blocks:
    """The same blocks with most of the longest periodic part left out, or as they are where that would save nothing.

    Three periods are kept: the one that stands for the others, and one on either side of it to compare with. Before them ``edge`` periods
    more, since the first block of each kind is in backward the last that uses what all of its kind share, such as a mask; behind them
    ``edge`` blocks more, since the last one has no successor. An edge of two is needed where the first block is none of those that use
    what is shared, because nothing is trained before its own adapters.

    >>> with_fewer(Blocks("layers", (0,) * 32, tuple(range(32)))).kept
    (0, 1, 2, 30, 31)
    >>> found = with_fewer(Blocks("layers", (9,) + (0, 0, 1) * 10, tuple(range(31))))
    >>> found.first, found.length, found.repeated
    (7, 3, 5)
    >>> with_fewer(Blocks("layers", (0,) * 32, tuple(range(32))), edge=2).kept
    (0, 1, 2, 3, 29, 30, 31)
    """
    found = blocks
    for start, length, covered in _periodic(blocks.kinds) if blocks.alone else ():
        repeated = (covered - edge) // length - (3 + edge)
        if repeated * length > found.repeated * found.length:
            first = start + (1 + edge) * length
            left_out = range(first + length, first + length + repeated * length)
            kept = tuple(index for index in blocks.kept if index not in left_out)
            found = replace(blocks, kept=kept, first=first, length=length, repeated=repeated)
    return found


def _periodic(kinds: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """(start, length of the period, how many blocks it covers) of the parts that repeat themselves, the shortest periods first."""
    for length in range(1, len(kinds) // 3 + 1):
        start = 0
        while start + length < len(kinds):
            end = start + length
            while end < len(kinds) and kinds[end] == kinds[end - length]:
                end += 1
            yield start, length, end - start
            start = max(end - length + 1, start + 1)


def cut(model: nn.Module, blocks: Blocks) -> list[nn.Module]:
    """Leaves out of the model what ``blocks`` does not keep, and tells its config. Returns the blocks that remain."""
    if not blocks.path:
        return []
    whole = model.get_submodule(blocks.path)
    assert isinstance(whole, nn.ModuleList)
    if len(blocks.kept) == len(whole):
        return list(whole)
    kept = [whole[index] for index in blocks.kept]
    parent = model.get_submodule(blocks.path.rpartition(".")[0])
    setattr(parent, blocks.path.rpartition(".")[2], nn.ModuleList(kept))
    _count_anew(parent, blocks)
    _shorten_lists(parent, blocks)
    for config in {id(found): found for module in model.modules() if (found := getattr(module, "config", None)) is not None}.values():
        if any(getattr(config, name, None) == len(blocks.kinds) for name in LAYER_COUNTS):
            _count_anew(config, blocks)
            _shorten_lists(config, blocks)
    for index, (old, block) in enumerate(zip(blocks.kept, kept, strict=True)):
        for module in block.modules():
            for name in _NUMBERS:
                if name in vars(module) and vars(module)[name] == old:
                    setattr(module, name, index)
    return kept


def _count_anew(holder: Any, blocks: Blocks) -> None:
    """States of a config or module how many blocks there are now."""
    for name in LAYER_COUNTS:
        if getattr(holder, name, None) == len(blocks.kinds):
            setattr(holder, name, len(blocks.kept))


def _shorten_lists(holder: Any, blocks: Blocks) -> None:
    """Lists with an entry for each block lose those of blocks that are left out; lists of blocks by number give the new ones."""
    whole = len(blocks.kinds)
    for name, value in list(vars(holder).items()):
        if not isinstance(value, (list, tuple)):
            continue
        if name.endswith(_LISTS_OF_NUMBERS) and all(type(each) is int for each in value) and list(value) == sorted(set(value)):
            setattr(holder, name, type(value)(new for new, old in enumerate(blocks.kept) if old in value))
        elif len(value) == whole:
            setattr(holder, name, type(value)(value[index] for index in blocks.kept))
