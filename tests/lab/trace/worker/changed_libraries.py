"""Makes every change to libraries and prints what came of it as JSON: self-tests, dtypes under autocast, bytes that operations take."""

from __future__ import annotations

import json
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from fullstep.lab.trace.worker.compat import UNITS, install_all
from fullstep.lab.trace.worker.places import Places
from fullstep.lab.trace.worker.recorder import Recorder
from fullstep.lab.trace.worker.workspaces import Workspaces

X = torch.ones(4, 4, dtype=torch.bfloat16)
WIDE = torch.ones(4, 4)
UNDER_AUTOCAST: dict[str, Callable[[], Tensor]] = {
    "rsqrt": lambda: torch.rsqrt(X),
    "power": lambda: X.pow(2),
    "softmax": lambda: torch.softmax(X, -1),
    "log_softmax": lambda: torch.log_softmax(X, -1),
    "sum": X.sum,
    "sum over a dimension": lambda: X.sum(-1, keepdim=True),
    "product": X.prod,
    "norm": X.norm,
    "norm over a dimension": lambda: X.norm(dim=-1),
    "vector norm": lambda: torch.linalg.vector_norm(X, dim=-1),
    "cumulated sum": lambda: X.cumsum(0),
    "layer norm": lambda: functional.layer_norm(X, [4]),
    "rms norm": lambda: functional.rms_norm(X, [4], X[0]),
    "softplus": lambda: functional.softplus(X),
    "logsumexp": lambda: X.logsumexp(-1),
    "squared error": lambda: functional.mse_loss(X, X),
    "cross entropy": lambda: functional.cross_entropy(X, torch.zeros(4, dtype=torch.long)),
    "mean": X.mean,
    "silu": lambda: functional.silu(X),
    "gelu": lambda: functional.gelu(X),
    "product of matrices": lambda: WIDE @ WIDE,
    "linear": lambda: functional.linear(WIDE, WIDE),
    "convolution": lambda: functional.conv1d(WIDE[None], WIDE[:, :1, None], groups=4),
    "einsum": lambda: torch.einsum("ij,kj->ik", WIDE, X),
    "vectors": lambda: torch.mv(WIDE, WIDE[0]),
    "concatenated": lambda: torch.cat([X, X]),
    "stacked": lambda: torch.stack([X, X]),
    "spectrum": lambda: torch.fft.rfft(WIDE.double()).real,
    "put at an index": lambda: WIDE.index_put((torch.tensor([0]),), X[:1]),
    "added by index": lambda: torch.scatter_add(WIDE, 0, torch.zeros(4, 4, dtype=torch.long), X),
    "multiplied": lambda: X * X,
}


def half(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch.empty(*shape, dtype=dtype, requires_grad=True)


TAKES: dict[str, Callable[[], Any]] = {
    "dropout": lambda: functional.dropout(half(64, 1024, dtype=torch.bfloat16), 0.1),
    "dropout in float32": lambda: functional.dropout(half(64, 1024, dtype=torch.float32), 0.1),
    "softmax of float16": lambda: functional.softmax(half(64, 1024), -1, dtype=torch.float32),
    "softmax of bfloat16": lambda: functional.softmax(half(64, 1024, dtype=torch.bfloat16), -1, dtype=torch.float32),
    "rms norm": lambda: functional.rms_norm(half(64, 1024), [1024], half(1024)),
    "layer norm": lambda: functional.layer_norm(half(64, 1024), [1024], half(1024), half(1024)),
    "attention": lambda: _attend(half(2, 4, 60, 64)),
    "attention, narrow heads": lambda: _attend(half(2, 4, 60, 60)),
    "attention, mask": lambda: _attend(half(2, 4, 64, 64), torch.empty(2, 1, 64, 64, dtype=torch.bool)),
    "attention, mask of an odd length": lambda: _attend(half(2, 4, 60, 64), torch.empty(2, 1, 60, 60, dtype=torch.bool)),
}


def _attend(query: Tensor, mask: Tensor | None = None) -> Tensor:
    return functional.scaled_dot_product_attention(query, query, query, attn_mask=mask, is_causal=mask is None)


def _bytes(run: Callable[[], Any]) -> list[int]:
    """Bytes of every allocation, in order."""
    with FakeTensorMode() as mode, Recorder(mode, Places(), Workspaces(None)) as recorder:
        kept = run()
    assert kept is not None
    return [size for size in recorder.stream.sizes if size > 0]


def _self_tests() -> dict[str, str]:
    found = {}
    for unit in UNITS:
        try:
            unit.self_test()
            found[unit.name] = ""
        except BaseException:
            found[unit.name] = traceback.format_exc(limit=-3)
    return found


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers.modeling_utils  # noqa: F401, PLC0415
    install_all(UNITS)
    answer: dict[str, Any] = {"units": _self_tests(), "takes": {name: _bytes(run) for name, run in TAKES.items()}}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer["autocast"] = {name: str(run().dtype).removeprefix("torch.") for name, run in UNDER_AUTOCAST.items()}
    answer["outside"] = {name: str(UNDER_AUTOCAST[name]().dtype).removeprefix("torch.") for name in ("rsqrt", "sum", "linear")}
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
