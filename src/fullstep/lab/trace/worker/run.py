"""The model of a worksheet built, wrapped and run under the recorder: in full, or with fewer of its equal blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fullstep.errors import UnsupportedError
from fullstep.job import Settings
from fullstep.lab.program.blocks import Blocks, cut, find_blocks, with_fewer
from fullstep.lab.program.classes import build_model, config_of, faults_of_class, require_positions
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.program.method import checkpoint_activations
from fullstep.lab.trace.worker import buckets, frameworks, kernels, layout, method
from fullstep.lab.trace.worker.data_dependent import Oracle
from fullstep.lab.trace.worker.four_bit import PackedLinear
from fullstep.lab.trace.worker.optimizers import build_optimizer
from fullstep.lab.trace.worker.places import Places
from fullstep.lab.trace.worker.recorder import Recorder, watching_resizes
from fullstep.lab.trace.worker.replicate import NotAlikeError, Repetition, replicate
from fullstep.lab.trace.worker.steps import Program, loss_marked, run_steps
from fullstep.lab.trace.worker.stream import OUTSIDE, Stream, settle_blocks
from fullstep.lab.trace.worker.workspaces import Workspaces

_MICRO_BATCHES = 3
"""first, middle, last: those between are alike"""
Owner = Callable[[nn.Parameter | nn.Module], int]
"""from a parameter or module to its block"""


@dataclass(slots=True)
class Sizes:
    """Counts of the whole model, also where only a part of it ran."""

    parameters: int = 0
    trainable_parameters: int = 0
    operations: int = 0
    """that ran"""


class Run:
    """Builds and runs the model.

    Args:
        config: the model's Hugging Face config
        settings: of the worksheet
        mesh: of its ranks
        report: is told the stage that begins
    """

    def __init__(self, config: Mapping[str, Any], settings: Settings, mesh: layout.Mesh, report: Callable[[str], None]) -> None:
        self.config, self.settings, self.mesh, self.report = config, settings, mesh, report
        self.sizes = Sizes()
        self.unlike = ""
        """where equal blocks did not behave alike, with few of them"""

    def whole(self) -> tuple[Stream, Blocks]:
        """Every block."""
        return self._recorded(lambda blocks: blocks)

    def shortened(self) -> tuple[Stream, Blocks]:
        """Equal blocks a few times, and the stream of the whole model made from that; with more of them at the edges where they have to be.

        Raises:
            NotAlikeError: they do not behave alike
        """
        try:
            return self._shortened(edge=1)
        except NotAlikeError as error:
            self.unlike = str(error)
        return self._shortened(edge=2)

    def _shortened(self, edge: int) -> tuple[Stream, Blocks]:
        chosen = Blocks("", (), ())

        def choose(blocks: Blocks) -> Blocks:
            nonlocal chosen
            chosen = with_fewer(blocks, edge)
            return chosen

        try:
            stream, blocks = self._recorded(choose)
        except UnsupportedError as error:
            if not chosen.repeated:
                raise
            raise NotAlikeError(f"without some of them the class does not run: {error.faults[0].found}") from error
        if not blocks.repeated:
            return stream, blocks
        self.report("repeating equal blocks")
        return replicate(stream, Repetition(blocks.first, blocks.length, blocks.repeated)), blocks

    def _recorded(self, choose: Callable[[Blocks], Blocks]) -> tuple[Stream, Blocks]:
        settings = self.settings
        with ExitStack() as stack:
            mode = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            stack.enter_context(Oracle(settings))
            stack.enter_context(layout.changes_undone(settings))
            self.report("building the model")
            model = build_model(config_of(self.config), DTYPES[settings.precision.weights], settings.step.attention)
            require_positions(model, settings.batch.sequence_tokens)
            blocks = choose(find_blocks(model, _told_apart(settings)))
            kept = cut(model, blocks)
            head = getattr(model, "get_output_embeddings", lambda: None)()
            adapted = method.apply_method(model, settings)
            checkpoint_activations(adapted if hasattr(adapted, "gradient_checkpointing_enable") else model, kept, settings)
            frameworks.impose(model, settings)
            kernels.impose(model, head, settings)
            self.sizes.parameters, self.sizes.trainable_parameters = _counts(adapted, kept, blocks)
            recorder = Recorder(mode, Places(), Workspaces(settings.machine.card))
            recorder.places.learn(adapted, kept, head)
            owner = _owners(kept)
            spread = self._spread(adapted, kept, blocks, recorder, owner)
            part = f"{len(kept)} of {len(blocks.kinds)}" if len(kept) < len(blocks.kinds) else str(len(kept))
            self.report(f"tracing {part} blocks")
            self._run(recorder, model, spread, owner)
            self.sizes.operations += recorder.operations
            stream = recorder.stream
        settle_blocks(stream)
        return stream, blocks

    def _spread(
        self, adapted: nn.Module, kept: Sequence[nn.Module], blocks: Blocks, recorder: Recorder, owner: Owner
    ) -> layout.Spread:
        """DDP's buckets are made while the recorder looks; FSDP replaces parameters, which are entered behind it."""
        if self.settings.layout.strategy != "ddp":
            spread = layout.spread(adapted, kept, self.mesh, self.settings, recorder)
            _enter_model(recorder, spread.model, owner)
            return spread
        _enter_model(recorder, adapted, owner)
        start = len(recorder.stream)
        with recorder:
            spread = layout.spread(adapted, kept, self.mesh, self.settings, recorder)
        if blocks.repeated:
            trained = buckets.trained_of_whole((p for p in adapted.parameters() if p.requires_grad), owner, blocks)
            with Recorder(recorder.mode, Places(), Workspaces(None)) as other:
                aside = layout.spread(trained, (), self.mesh, self.settings, other)
            buckets.impose(recorder.stream, start, other.stream)
            del aside
        return spread

    def _run(self, recorder: Recorder, base: nn.Module, spread: layout.Spread, owner: Owner) -> None:
        settings = self.settings
        program = Program(
            settings=settings,
            model=spread.model,
            base=base,
            optimizer=build_optimizer(settings, base, [p for p in spread.model.parameters() if p.requires_grad], recorder),
            micro_batches=min(settings.batch.accumulation, _MICRO_BATCHES),
            syncs=spread.syncs,
            block_of=owner,
            around_forward=kernels.around_forward(settings, recorder),
        )
        recorder.places.follow()
        try:
            with loss_marked(base, recorder), watching_resizes(recorder), recorder, faults_of_class(base):
                run_steps(program, recorder)
        finally:
            recorder.places.stop()


def _told_apart(settings: Settings) -> Callable[[int], object]:
    """What the worksheet does with one block and not with another: recomputation of every n-th, modules named by their block's number."""
    every = settings.step.activation_checkpointing
    named = any(part.isdigit() for name in (*settings.method.targets, *settings.method.train_modules) for part in name.split("."))

    def tell(number: int) -> object:
        return number if named else isinstance(every, int) and number % every == 0

    return tell


def _counts(adapted: nn.Module, kept: Sequence[nn.Module], blocks: Blocks) -> tuple[int, int]:
    """(all, trained) parameters of the whole model; packed weights count as the elements that they stand for."""
    every, trained = _elements(adapted), _trained(adapted)
    if blocks.repeated:
        end = blocks.first + blocks.length
        elsewhere = {id(p) for block in (*kept[: blocks.first], *kept[end:]) for p in block.parameters()}  # shared weights are there once
        for block in kept[blocks.first : end]:
            every += blocks.repeated * _elements(block, elsewhere)
            trained += blocks.repeated * _trained(block, elsewhere)
    return every, trained


def _elements(model: nn.Module, without: Collection[int] = ()) -> int:
    seen: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in without:
                packed = isinstance(module, PackedLinear) and parameter is module.weight
                seen[id(parameter)] = module.in_features * module.out_features if packed else parameter.numel()
    return sum(seen.values())


def _trained(model: nn.Module, without: Collection[int] = ()) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad and id(parameter) not in without)


def _owners(blocks: Sequence[nn.Module]) -> Owner:
    """From a parameter or module to its block, also after FSDP has put another one in its place; what blocks share belongs to none."""
    known: dict[int, int] = {}

    def find(part: nn.Parameter | nn.Module) -> int:
        if id(part) not in known:
            found: dict[int, int] = {}
            for index, block in enumerate(blocks):
                for each in (*block.parameters(), *block.modules()):
                    found[id(each)] = OUTSIDE if id(each) in found else index
            known.update(found)
        return known.setdefault(id(part), OUTSIDE)

    return find


def _enter_model(recorder: Recorder, model: nn.Module, owner: Owner) -> None:
    """Weights and buffers are there before the first step. Scales of a packed weight are weights."""
    named = list(model.named_parameters())
    recorder.hold((p for _, p in named), "weights", lambda at: owner(named[at][1]), lambda at: named[at][0].rpartition(".")[0])
    for name, module in model.named_modules():
        block = owner(module)
        for tensors, holding in ((module._buffers.values(), "buffers"), (getattr(module, "quant_state", ()), "weights")):
            recorder.hold(tensors, holding, lambda _, block=block: block, lambda _, name=name: name)  # type: ignore[misc]
