"""The real optimizer of a worksheet; where its library needs a GPU, a stand-in with the same states and temporaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from fullstep.job import Settings
from fullstep.lab.program.optimizers import ON_THE_TRAINER, adafactor, muon
from fullstep.lab.program.torch_optimizers import KINDS, by_mesh, torch_optimizer
from fullstep.lab.trace.worker.offload import step_on_host
from fullstep.lab.trace.worker.optimizer_stand_ins import PAGED, Lion, LowBit, Quantized
from fullstep.lab.trace.worker.recorder import Recorder

Parameters = Sequence[nn.Parameter]
_RATE = 1e-4


def build_optimizer(settings: Settings, model: nn.Module, parameters: Parameters, recorder: Recorder) -> Any:
    """The optimizer over the parameters that train, where the worksheet has it: after backward or in it, on the GPU or on the host.

    Args:
        settings: the worksheet
        model: of transformers, whose embedding and head some optimizers treat apart
        parameters: that train, as the layout has them
        recorder: is told what the step makes on the host
    """
    make = _KNOWN[settings.optimizer.name]
    if settings.optimizer.in_backward:
        return _in_backward(lambda p: make([p], settings, model), parameters, recorder)
    optimizer = make(parameters, settings, model)
    if settings.layout.offload_parameters:
        for each in optimizer.optimizers if isinstance(optimizer, Together) else [optimizer]:
            step_on_host(each, recorder)
    return optimizer


def states_of(optimizer: Any) -> list[tuple[nn.Parameter, str, Tensor]]:
    """(parameter, name, tensor) of every state."""
    return [
        (parameter, name, value)
        for parameter, states in optimizer.state.items() for name, value in states.items() if isinstance(value, Tensor)
    ]  # fmt: skip


def host_states(optimizer: Any) -> list[Tensor]:
    """What torch's allocator does not hold: paged states, and step counters where no kernel on the GPU reads them (fused)."""
    fused = any(group.get("fused") or group.get("capturable") for group in optimizer.param_groups)
    return [value for _, name, value in states_of(optimizer) if name.startswith(PAGED) or (name == "step" and not fused)]


class Together:
    """Several optimizers as one, and nothing beside: as one of torch's, its own calls would be operations of the step."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = optimizers

    @property
    def state(self) -> dict[nn.Parameter, dict[str, Any]]:
        """Of all of them."""
        return {parameter: states for each in self.optimizers for parameter, states in each.state.items()}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Of all of them."""
        return [group for each in self.optimizers for group in each.param_groups]

    def step(self) -> None:
        """Each in its turn."""
        for each in self.optimizers:
            each.step()

    def zero_grad(self) -> None:
        """Gradients are let go."""
        for each in self.optimizers:
            each.zero_grad()


def _in_backward(make: Callable[[nn.Parameter], Any], parameters: Parameters, recorder: Recorder) -> Together:
    """An optimizer per parameter, which steps as soon as its gradient is there. Source: torchtune, register_optim_in_bwd_hooks."""
    of_parameter = {parameter: make(parameter) for parameter in parameters}

    def step(parameter: nn.Parameter) -> None:
        recorder.hold([parameter.grad], "gradients")
        first = len(recorder.stream.tensors)
        of_parameter[parameter].step()
        of_parameter[parameter].zero_grad()
        for record in recorder.stream.tensors[first:]:
            record.holding = "temporaries"  # states are said to be states after the step

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(step)
    return Together(list(of_parameter.values()))


def _of_torch(parameters: Parameters, settings: Settings, _: nn.Module) -> Any:
    return torch_optimizer(settings.optimizer, by_mesh(parameters), _RATE)


def _of_bitsandbytes(states: int, *, bits: int, paged: bool = False) -> Callable[..., Any]:
    """Where state is sharded the 8-bit AdamW is torchao's, which knows sharded tensors.

    The Trainer keeps float32 states for embeddings. Source: transformers, trainer.py, create_optimizer (register_module_override).
    """

    def make(parameters: Parameters, settings: Settings, model: nn.Module) -> Any:
        if settings.layout.is_fsdp and states == 2 and bits == 8 and not paged:
            return LowBit(parameters, bits=8)
        wide: set[int] = set()
        if settings.step.framework in ON_THE_TRAINER and bits == 8:
            wide = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
        return Quantized(parameters, states, bits=bits, paged=paged, wide=wide)

    return make


_KNOWN: dict[str, Callable[[Parameters, Settings, nn.Module], Any]] = {
    **dict.fromkeys(KINDS, _of_torch),
    "adafactor": lambda parameters, _, __: adafactor(parameters, _RATE),
    "lion": lambda parameters, _, __: Lion(parameters),
    "muon": lambda parameters, settings, model: Together(muon(settings, model, parameters, _RATE)),
    "adamw_8bit": _of_bitsandbytes(2, bits=8),
    "lion_8bit": _of_bitsandbytes(1, bits=8),
    "paged_adamw": _of_bitsandbytes(2, bits=32, paged=True),
    "paged_adamw_8bit": _of_bitsandbytes(2, bits=8, paged=True),
    "adamw_4bit": lambda parameters, _, __: LowBit(parameters, bits=4),
}
