"""What does not train is not saved: a fingerprint of it tells whether it is still what training stood on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from fullstep.resume.errors import LoadError, ResumeError, SaveError
from fullstep.resume.ranks import Ranks

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
"""integers as wide as an element: the same bits give the same fingerprint however a tensor is divided among ranks"""
_WRAPPINGS = ("_orig_mod", "module", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_MOST_SHOWN = 3


class _Bits(NamedTuple):
    """Of one parameter on one rank."""

    what: str
    """dtype and whole shape"""
    xor: int
    """of its elements here"""
    divided: bool
    """a DTensor: other ranks have the rest"""


class Frozen:
    """The parameters of a model that do not train.

    Of each the exclusive or of its elements' bits is taken (``torch.hash_tensor``): it costs one reading, no memory, and shows every change
    but an exchange of elements, or of one constant for another. All ranks must call the same methods.

    Args:
        model: as it is trained
        ranks: all of them
    """

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self._parameters = {_plain(name): each for name, each in model.named_parameters() if not each.requires_grad}
        self._ranks = ranks
        self._at_first: dict[str, _Bits] | None = None

    def fingerprint(self, kind: type[LoadError] | type[SaveError] = SaveError) -> tuple[str, ...]:
        """Of all of them: one digest; where ranks hold different ones under the same name, one for each; empty: everything trains.

        Raises:
            ResumeError: of that kind: they are no longer what they were when this was first asked
        """
        if not self._parameters:
            return ()
        bits = self._ranks.together(self._bits, kind)
        if self._at_first is None:
            self._at_first = bits
        self._ranks.together(partial(_require_same, self._at_first, bits), kind)
        everywhere = self._ranks.share(bits, kind)
        digests = [_digest(_with_all_shards(each, everywhere)) for each in everywhere]
        return tuple(digests) if len(set(digests)) > 1 else (digests[0],)

    def require(self, saved: Sequence[str], ranks: int) -> None:
        """That they are those of a checkpoint, as far as shards that have no common form can be compared.

        Args:
            saved: fingerprint in its manifest
            ranks: that saved it

        Raises:
            LoadError: they are others
        """
        self._at_first = None
        here = self.fingerprint(LoadError)
        if saved and here and tuple(saved) != here and (ranks == self._ranks.count or len(saved) == len(here) == 1):
            what = "the parameters that do not train are not those with which it was saved: another base, precision or quantization"
            raise LoadError(what, "Nothing was changed. Build the model from the base that it was trained on.")

    def _bits(self) -> dict[str, _Bits]:
        return {name: _bits_of(each) for name, each in self._parameters.items()}


def _bits_of(parameter: Tensor) -> _Bits:
    what = f"{parameter.dtype} {tuple(parameter.shape)}"
    if parameter.is_meta:
        raise ResumeError("a parameter that does not train is on the meta device", "Fill the model before its checkpoint is loaded.")
    if not isinstance(parameter, DTensor):
        return _Bits(what, _xor(parameter.detach()), divided=False)
    coordinates = parameter.device_mesh.get_coordinate() or ()
    copies = [at for at, placement in zip(coordinates, parameter.placements, strict=True) if placement.is_replicate()]
    return _Bits(what, 0 if any(copies) else _xor(parameter.to_local().detach()), divided=True)


def _xor(tensor: Tensor) -> int:
    """The exclusive or of the bits of all elements.

    >>> _xor(torch.tensor([1.0, 2.0])) == 0x3F800000 ^ 0x40000000, _xor(torch.zeros(0))
    (True, 0)
    """
    if not tensor.numel():
        return 0
    return int(torch.hash_tensor(tensor.reshape(-1).view(_WORDS[tensor.element_size()])).view(torch.int64)) & 2**64 - 1


def _require_same(before: Mapping[str, _Bits], now: Mapping[str, _Bits]) -> None:
    changed = [name for name in before if before[name] != now[name]]
    if not changed:
        return
    shown = ", ".join(changed[:_MOST_SHOWN]) + (f" and {len(changed) - _MOST_SHOWN} more" if len(changed) > _MOST_SHOWN else "")
    what = f"parameters that do not train have changed, and checkpoints do not hold them: {shown}"
    raise SaveError(what, "Give the module that holds them to Checkpoints by extra=, or let them train.")


def _with_all_shards(own: Mapping[str, _Bits], everywhere: Sequence[Mapping[str, _Bits]]) -> list[str]:
    lines = []
    for name, bits in own.items():
        xor = 0
        for each in [rank[name] for rank in everywhere] if bits.divided else [bits]:
            xor ^= each.xor
        lines.append(f"{bits.what} {xor:016x}")
    return lines


def _digest(lines: Sequence[str]) -> str:
    """Names are left out of it: wrapping changes them."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _plain(name: str) -> str:
    """Without what wrappers put into it.

    >>> _plain("module.layers.0._orig_mod.weight")
    'layers.0.weight'
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPINGS)
