"""A real training step on the processor, and the most bytes that its allocator gave out in each phase.

This is the plain program that the tracer follows, written once more without it: real tensors with random values, no fake tensors, no
recorder, no change to any library. The allocator's own events (``[memory]`` of torch.profiler) are added up.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.models import model_config

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
STEPS = 2
_MARK = "MARK "
Peaks = dict[str, int]


def peaks(worksheet: dict[str, Any]) -> Peaks:
    """Most bytes allocated in each phase, by "step micro-batch phase"."""
    settings = settings_of(worksheet_from_mapping(worksheet))
    config, _ = model_config(settings.worksheet.section("model"))
    if settings.layout.strategy == "ddp":
        with tempfile.TemporaryDirectory() as folder:
            _with_the_other_ranks(config, settings, folder)
            return _measured(config, settings)
    if settings.layout.is_fsdp:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=settings.machine.gpus)
    return _measured(config, settings)


def _with_the_other_ranks(config: dict[str, Any], settings: Settings, folder: str) -> None:
    """Returns as rank 0 of a group of processes that send gradients to each other for real."""
    ranks = settings.machine.gpus
    for rank in range(1, ranks):
        if not os.fork():
            dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
            train(build(config, settings), settings)
            os._exit(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=ranks)


def _measured(config: dict[str, Any], settings: Settings) -> Peaks:
    """The events of the allocator tell of no release of what was there before they began: they begin before the model."""
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        _mark(0, 0, "setup")
        train(build(config, settings), settings)
    return _added_up(profiler)


def build(config: dict[str, Any], settings: Settings) -> nn.Module:
    """The model with real weights, and its adapters."""
    import transformers  # noqa: PLC0415

    keys = dict(config)
    cls: Any = transformers.AutoConfig.for_model(keys.pop("model_type"), **keys)
    model: Any = transformers.AutoModelForCausalLM.from_config(
        cls, dtype=DTYPES[settings.precision.weights], attn_implementation=settings.step.attention
    )
    model.train()
    method = settings.method
    if method.kind != "full":
        from peft import LoraConfig, get_peft_model  # noqa: PLC0415

        adapters = LoraConfig(
            task_type="CAUSAL_LM", r=method.rank, lora_alpha=method.rank, lora_dropout=method.dropout,
            target_modules=settings.worksheet.section("method")["targets"], use_dora=method.kind == "dora",
        )  # fmt: skip
        model = get_peft_model(model, adapters, autocast_adapter_dtype=settings.precision.adapters == "float32")
    if settings.step.activation_checkpointing == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if method.kind != "full":
            model.enable_input_require_grads()
    return model


def train(model: nn.Module, settings: Settings) -> None:
    """Two optimizer steps."""
    _mark_loss(model)
    vocabulary = _config(model).vocab_size
    shape = (settings.batch.micro_batch, settings.batch.sequence_tokens)
    rounds = settings.batch.accumulation
    model, no_sync = _spread(model, settings)
    every: Any = model
    optimizers = _optimizers(model, settings)
    early = settings.step.gradients_cleared == "before_backward"
    for step in range(1, STEPS + 1):
        for micro_batch in range(1, rounds + 1):
            _where[:] = [step, micro_batch]
            _mark(step, micro_batch, "inputs")
            tokens = torch.randint(0, vocabulary, shape)
            inputs = {"input_ids": tokens, "labels": tokens.clone()}
            if not settings.batch.packed:
                inputs["attention_mask"] = _padded(shape)
            del tokens
            with no_sync() if micro_batch < rounds else contextlib.nullcontext():
                _mark(step, micro_batch, "forward")
                with torch.autocast("cpu", DTYPES[settings.precision.compute], enabled=settings.precision.autocast):
                    output = every(**inputs, use_cache=False)
                loss = output.loss
                if not settings.step.keeps_outputs:
                    del output
                inputs.clear()
                if rounds > 1:
                    loss = loss / rounds
                if early and micro_batch == 1:
                    _clear(optimizers)
                _mark(step, micro_batch, "backward")
                loss.backward()
                loss = output = None
        _mark(step, 0, "optimizer_step")
        for optimizer in optimizers:
            optimizer.step()
        _mark(step, 0, "gradients_cleared")
        if not early:
            _clear(optimizers)
    _mark(STEPS + 1, 0, "done")


def _clear(optimizers: list[torch.optim.Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad()


def _padded(shape: tuple[int, int]) -> Tensor:
    mask = torch.ones(shape, dtype=torch.long)
    mask[0, shape[1] // 2 :] = 0
    return mask


def _config(model: nn.Module) -> Any:
    inner: Any = model
    return inner.config


_where = [0, 0]


def _mark(step: int, micro_batch: int, phase: str) -> None:
    with record_function(f"{_MARK}{step} {micro_batch} {phase}"):
        pass


def _mark_loss(model: nn.Module) -> None:
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    compute: Callable[..., Tensor] = base.loss_function

    def loss_function(*args: Any, **kwargs: Any) -> Tensor:
        _mark(*_where, "loss")
        return compute(*args, **kwargs)

    base.loss_function = loss_function


def _optimizers(model: nn.Module, settings: Settings) -> list[torch.optim.Optimizer]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    name, kind = settings.optimizer.name, settings.optimizer.implementation
    how: dict[str, Any] = {"fused": True} if kind == "fused" else {"foreach": kind == "foreach"}
    if name == "adamw":
        return [torch.optim.AdamW(parameters, lr=1e-4, **how)]
    if name == "adam":
        return [torch.optim.Adam(parameters, lr=1e-4, **how)]
    if name in ("sgd", "sgd_momentum"):
        return [torch.optim.SGD(parameters, lr=1e-4, momentum=0.9 if name == "sgd_momentum" else 0.0, **how)]
    if name == "adafactor":
        from transformers.optimization import Adafactor  # noqa: PLC0415

        return [Adafactor(parameters, lr=1e-4, scale_parameter=False, relative_step=False)]
    if name == "muon":
        edge = {id(p) for part in ("embed_tokens", "lm_head") for n, p in model.named_parameters() if part in n}
        inner = [p for p in parameters if p.dim() == 2 and id(p) not in edge]
        others = [p for p in parameters if p.dim() != 2 or id(p) in edge]
        return [torch.optim.Muon(inner, lr=1e-4), torch.optim.AdamW(others, lr=1e-4, **how)]
    raise ValueError(name)


def _spread(model: nn.Module, settings: Settings) -> tuple[nn.Module, Callable[[], contextlib.AbstractContextManager[None]]]:
    """The model in its layout, over the process group."""
    layout, precision = settings.layout, settings.precision
    if layout.strategy == "single":
        return model, contextlib.nullcontext
    if layout.strategy == "ddp":
        ddp: Any = nn.parallel.DistributedDataParallel(model)
        return ddp, contextlib.nullcontext if layout.sync_every_micro_batch else ddp.no_sync
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    mesh = init_device_mesh("cpu", (settings.machine.gpus,))
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[precision.compute], reduce_dtype=DTYPES[precision.reduce])
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    for block in base.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=layout.reshard_after_forward)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=layout.reshard_after_forward)
    whole: Any = model

    @contextlib.contextmanager
    def no_sync() -> Iterator[None]:
        whole.set_requires_gradient_sync(layout.sync_every_micro_batch)
        yield
        whole.set_requires_gradient_sync(True)

    return model, no_sync


def _added_up(profiler: Any) -> Peaks:
    events: list[tuple[int, str, int]] = []
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            events.append((event.start_ns(), "", event.nbytes()))
        elif event.name().startswith(_MARK):
            events.append((event.start_ns(), event.name().removeprefix(_MARK), 0))
    events.sort(key=lambda event: event[0])
    allocated, phase, found = 0, "", Peaks()
    for _, mark, size_bytes in events:
        phase = mark or phase
        allocated += size_bytes
        found[phase] = max(found.get(phase, 0), allocated)
    return found
