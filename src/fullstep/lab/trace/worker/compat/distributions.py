"""Distributions do not look at the values of their parameters."""

from __future__ import annotations

import torch

from fullstep.lab.trace.worker.compat.unit import Unit


def _install() -> None:
    torch.distributions.Distribution.set_default_validate_args(False)


def _self_test() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

    with FakeTensorMode():
        logits = torch.empty(2, 3, 8)
        assert torch.distributions.Categorical(logits=logits).entropy().shape == (2, 3)


DISTRIBUTIONS = Unit(
    name="distributions",
    why="they refuse parameters out of range, and tensors without values are out of any",
    install=_install,
    self_test=_self_test,
)
