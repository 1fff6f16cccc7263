"""Results of linear algebra and Fourier transforms lie in memory as CUDA's libraries leave them.

peft keeps slices of a matrix's factors. Whether a slice is a copy, or holds on to the whole factor, hangs on the order of its elements.
Source: torch/_meta_registrations.py (device_hint; linalg_svd_meta: the right factor is row-major on CUDA, column-major elsewhere).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import _meta_registrations as shapes

from fullstep.lab.trace.worker.compat.unit import Unit


def _cuda(_: Any) -> str:
    return "cuda"


def _install() -> None:
    shapes.device_hint = _cuda


def _self_test() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

    with FakeTensorMode():
        _, _, right = torch.linalg.svd(torch.empty(6, 4), full_matrices=False)
        assert right[:2].contiguous().untyped_storage()._cdata == right.untyped_storage()._cdata


LINEAR_ALGEBRA = Unit(
    name="linear_algebra",
    why="a processor's factors have another order of elements, of which slices are copied",
    install=_install,
    self_test=_self_test,
    imposes_cuda=True,
)
