"""The real optimizer of a worksheet; where its library needs a GPU, a stand-in with the same states and temporaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fullstep.errors import Fault, UnsupportedError
from fullstep.job.job import Optimizer

Make = Callable[[Sequence[nn.Parameter], Optimizer], torch.optim.Optimizer]
_QUANTILE_BLOCK = 256
_SMALLEST_QUANTIZED = 4096
_RATE = 1e-4


def build_optimizer(settings: Optimizer, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer over the parameters that train.

    Raises:
        UnsupportedError: it cannot be traced
    """
    make = _KNOWN.get(settings.name)
    if make is None:
        raise UnsupportedError(Fault("optimizer.name", f'"{settings.name}", which cannot be traced', ", ".join(_KNOWN)))
    return make(parameters, settings)


def states_of(optimizer: torch.optim.Optimizer) -> list[tuple[nn.Parameter, str, Tensor]]:
    """(parameter, name, tensor) of every state."""
    found = []
    for parameter, states in optimizer.state.items():
        for name, value in states.items():
            if isinstance(value, Tensor):
                found.append((parameter, name, value))
    return found


def host_states(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Step counters that torch keeps in host memory, as it does unless the kernel reads them (fused)."""
    fused = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
    return [] if fused else [value for _, name, value in states_of(optimizer) if name == "step"]


def _how(settings: Optimizer) -> dict[str, Any]:
    if settings.implementation == "fused":
        return {"fused": True}
    return {"foreach": settings.implementation == "foreach"}


def _adam(kind: type[torch.optim.Optimizer]) -> Make:
    return lambda parameters, settings: kind(parameters, lr=_RATE, **_how(settings))  # type: ignore[call-arg]


def _sgd(momentum: float) -> Make:
    return lambda parameters, settings: torch.optim.SGD(parameters, lr=_RATE, momentum=momentum, **_how(settings))


def _adafactor(parameters: Sequence[nn.Parameter], _: Optimizer) -> torch.optim.Optimizer:
    """The one that transformers' Trainer takes (optim="adafactor")."""
    from transformers.optimization import Adafactor  # noqa: PLC0415

    return Adafactor(parameters, lr=_RATE, scale_parameter=False, relative_step=False)  # type: ignore[no-any-return]


def _muon(parameters: Sequence[nn.Parameter], settings: Optimizer) -> torch.optim.Optimizer:
    """torch's Muon for matrices inside the model, AdamW for the embedding, the head and vectors, as its authors say."""
    matrices = [p for p in parameters if p.dim() == 2 and not getattr(p, "fullstep_at_the_edge", False)]
    chosen = {id(p) for p in matrices}
    others = [p for p in parameters if id(p) not in chosen]
    return _Together([torch.optim.Muon(matrices, lr=_RATE)] + ([torch.optim.AdamW(others, lr=_RATE, **_how(settings))] if others else []))


class _Together(torch.optim.Optimizer):
    """Several optimizers that step one after another."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        super().__init__([p for each in optimizers for group in each.param_groups for p in group["params"]], {})
        self.optimizers = optimizers

    def step(self, closure: Any = None) -> None:
        for each in self.optimizers:
            each.step()
            self.state.update(each.state)


class _Lion(torch.optim.Optimizer):
    """Lion with one momentum, tensor by tensor.

    Source: lion-pytorch 0.2 (update_fn): decay in place; update = exp_avg.clone().mul_(b1).add(grad).sign_(); then the momentum in place.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                p.mul_(1 - _RATE)
                update = state["exp_avg"].clone().mul_(0.9).add(p.grad, alpha=0.1).sign_()
                p.add_(update, alpha=-_RATE)
                state["exp_avg"].mul_(0.99).add_(p.grad, alpha=0.01)


class _Quantized(torch.optim.Optimizer):
    """States of bitsandbytes: 8 bits per element and a float32 scale per block of 256; one fused kernel, no temporaries.

    Tensors below 4,096 elements keep float32 states. Source: bitsandbytes 0.50, optim/optimizer.py (init_state, min_8bit_size), adamw.py.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], states: int, quantized: bool) -> None:
        super().__init__(parameters, {})
        self._states, self._quantized = states, quantized

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None or self.state[p]:
                    continue
                local = p._local_tensor if hasattr(p, "_local_tensor") else p.data
                self.state[p] = self._made(local)

    def _made(self, p: Tensor) -> dict[str, Tensor]:
        small = p.numel() < _SMALLEST_QUANTIZED or not self._quantized
        found: dict[str, Tensor] = {}
        for number in range(1, self._states + 1):
            found[f"state{number}"] = torch.zeros_like(p, dtype=torch.float32 if small else torch.uint8)
            if not small:
                found[f"absmax{number}"] = torch.zeros(-(-p.numel() // _QUANTILE_BLOCK), dtype=torch.float32, device=p.device)
        return found


_KNOWN: dict[str, Make] = {
    "adamw": _adam(torch.optim.AdamW),
    "adam": _adam(torch.optim.Adam),
    "sgd": _sgd(0.0),
    "sgd_momentum": _sgd(0.9),
    "adafactor": _adafactor,
    "lion": lambda parameters, _: _Lion(parameters),
    "muon": _muon,
    "adamw_8bit": lambda parameters, _: _Quantized(parameters, 2, quantized=True),
    "lion_8bit": lambda parameters, _: _Quantized(parameters, 1, quantized=True),
}
