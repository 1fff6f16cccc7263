"""Full steps of a real program, marked where stretches begin and timed where they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fullstep.job import Settings
from fullstep.lab.buildable import compiles_blocks
from fullstep.lab.probe.worker.counters import Counter
from fullstep.lab.program.compiled import compile_program
from fullstep.lab.program.real import Program

_TARGETS_LEFT_OUT = -100
"""of torch's cross entropy: padding has no target"""


class Timed(NamedTuple):
    """One optimizer step of this rank, in seconds."""

    step: int
    seconds: float
    """until the device has done all of it"""
    data_seconds: float
    """making rows and bringing them to the device: nothing is computed meanwhile"""
    tokens: int
    """of this rank, padding not among them"""


class Steps:
    """Optimizer steps of a program, one after the other.

    Args:
        program: model, optimizer and layout
        seed: of the rows, each rank's own
        counter: is told where stretches begin; steps that it no longer counts are quick ones, unless they are compiled, since other
            products would have to be compiled again
    """

    def __init__(self, program: Program, seed: int, counter: Counter) -> None:
        self._program, self._settings, self._counter = program, program.settings, counter
        self._random = torch.Generator().manual_seed(seed)
        self._at = (0, 0)
        self.count = 0
        """steps that were made"""
        self._compiles = self._settings.step.compile
        if not self._compiles or compiles_blocks(self._settings):  # inside of a graph nothing can be called
            _call_at_loss(program.model, lambda: self._mark("loss"))

    def compile(self) -> None:
        """The model or its blocks, as the worksheet's tools have it; then a micro-batch, for which kernels are made and tried out.

        No step follows it. What that takes, in memory and in time, is of no step that is counted or timed.
        """
        compile_program(self._program)
        self._at = (0, 0)
        self._mark("compile")
        inputs = rows_of(self._settings, self._program.vocabulary, self._random, self._program.device)
        with self._program.spread.syncs(True):
            with self._program.autocast():
                loss: Tensor = self._program.model(**inputs, use_cache=False).loss
            loss.backward()
        del loss
        inputs.clear()
        self._program.optimizer.zero_grad()
        _wait_for(self._program.device)

    def step(self) -> Timed:
        """One optimizer step with accumulation."""
        self.count += 1
        settings, optimizer = self._settings, self._program.optimizer
        micro_batches, data_seconds, tokens = settings.batch.accumulation, 0.0, 0
        stays = settings.step.gradients_cleared == "before_backward"
        begun = time.perf_counter()
        for micro_batch in range(1, micro_batches + 1):
            self._at = (self.count, micro_batch)
            self._mark("inputs")
            _wait_for_stream(self._program.device)  # as bringing rows there does: work that is queued is no waiting for data
            asked = time.perf_counter()
            inputs = rows_of(settings, self._program.vocabulary, self._random, self._program.device)
            data_seconds += time.perf_counter() - asked
            tokens += int(inputs["labels"].ne(_TARGETS_LEFT_OUT).sum())
            products = self._program.products() if self._counter.is_over and not self._compiles else nullcontext()
            with self._program.spread.syncs(micro_batch == micro_batches), products:
                self._micro_batch(inputs, micro_batches, clears=stays and micro_batch == 1)
        self._at = (self.count, 0)
        self._mark("optimizer_step")
        optimizer.step()
        self._mark("gradients_cleared")
        if not stays:
            optimizer.zero_grad()
        _wait_for(self._program.device)
        return Timed(self.count, time.perf_counter() - begun, data_seconds, tokens)

    def _micro_batch(self, inputs: dict[str, Tensor], micro_batches: int, *, clears: bool) -> None:
        self._mark("forward")
        with self._program.autocast():
            output = self._program.model(**inputs, use_cache=False)
        loss: Tensor = output.loss
        kept = output if self._settings.step.keeps_outputs else None
        del output
        inputs.clear()
        if micro_batches > 1:
            loss = loss / micro_batches
        if clears:
            self._program.optimizer.zero_grad()
        self._mark("backward")
        loss.backward()
        del loss, kept

    def evaluate(self) -> float:
        """One micro-batch of an evaluation, without gradients [s]; where the model is compiled, one before it makes the kernels."""
        self._program.model.eval()
        if self._compiles:
            self._at = (0, 0)
            self._mark("compile")
            self._evaluated()
        self._at = (self.count, 0)
        begun = time.perf_counter()
        self._mark("evaluation")
        self._evaluated()
        seconds = time.perf_counter() - begun
        self._program.model.train()
        return seconds

    def _evaluated(self) -> None:
        rows = self._settings.evaluation.micro_batch
        inputs = rows_of(self._settings, self._program.vocabulary, self._random, self._program.device, rows)
        with torch.no_grad(), self._program.autocast():
            output = self._program.model(**inputs, use_cache=False)
        kept = output.logits.float() if self._settings.evaluation.keeps_logits else None
        _wait_for(self._program.device)
        del output, kept

    def _mark(self, phase: str) -> None:
        if phase != "loss" or (torch.is_grad_enabled() and self._at != (0, 0)):
            self._counter.mark(*self._at, phase)


def rows_of(
    settings: Settings, vocabulary: int, random: torch.Generator, device: torch.device, rows: int | None = None
) -> dict[str, Tensor]:
    """A micro-batch of random tokens: the first row as long as rows get; the others of mean length and padded, where rows are not packed.

    Args:
        settings: of the worksheet
        vocabulary: size [tokens]
        random: where tokens come from
        device: to which they go
        rows: None: ``batch.micro_batch``
    """
    batch = settings.batch
    shape = (rows or batch.micro_batch, batch.sequence_tokens)
    tokens = torch.randint(vocabulary, shape, generator=random)
    found = {"input_ids": tokens, "labels": tokens.clone()}
    if not batch.packed:
        mask = torch.ones(shape, dtype=torch.long)
        mask[1:, min(max(round(batch.mean_sample_tokens), 1), shape[1]) :] = 0
        found["labels"].masked_fill_(mask == 0, _TARGETS_LEFT_OUT)
        found["attention_mask"] = mask
    return {name: value.to(device) for name, value in found.items()}


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _wait_for_stream(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _call_at_loss(model: nn.Module, mark: Callable[[], None]) -> None:
    """Where the class has a loss function of its own: of those without, the loss counts as a part of forward."""
    base: Any = getattr(model, "module", model)
    base = base.get_base_model() if hasattr(base, "get_base_model") else base
    if not hasattr(base, "loss_function"):
        return
    compute = base.loss_function

    def loss_function(*given: Any, **named: Any) -> Any:
        mark()
        return compute(*given, **named)

    base.loss_function = loss_function
