"""Libraries ask the machine what it can do; they are told what the worksheet's card can."""

from __future__ import annotations

from typing import Any

import torch

from fullstep.lab.trace.worker.compat.unit import Unit

_capability = (9, 0)


def say_capability(of_card: tuple[int, int]) -> None:
    """CUDA compute capability of the card, for example (9, 0)."""
    global _capability  # noqa: PLW0603 - what the changed libraries ask has no other place to stand
    _capability = of_card


def capability() -> tuple[int, int]:
    """Of the card; an H100's where the worksheet names none."""
    return _capability


def _install() -> None:
    torch.cuda.get_device_capability = lambda *_, **__: _capability
    torch.cuda.is_bf16_supported = _is_bf16_supported
    from transformers.integrations import moe  # noqa: PLC0415

    if hasattr(moe, "_can_use_grouped_mm"):
        moe._can_use_grouped_mm = _can_use_grouped_mm


def _is_bf16_supported(including_emulation: bool = True) -> bool:
    """Older cards compute bfloat16 in float32, and count."""
    return including_emulation or _capability >= (8, 0)


def _can_use_grouped_mm(*_: Any, **__: Any) -> bool:
    return _capability >= (8, 0)


def _self_test() -> None:
    assert torch.cuda.get_device_capability() == _capability
    from transformers.integrations import moe  # noqa: PLC0415

    assert moe._can_use_grouped_mm is _can_use_grouped_mm


CAPABILITIES = Unit(
    name="capabilities",
    why="there is no card here that could be asked",
    install=_install,
    self_test=_self_test,
    imposes_cuda=True,
    libraries=("torch", "transformers"),
)
