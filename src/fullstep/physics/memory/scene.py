"""All that the walk through a step needs to know, and the worst moments that it notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fullstep.ledger import Holdings, Instant
from fullstep.ledger.instants import At
from fullstep.models import ModelShape
from fullstep.physics.memory.head import HeadProfile
from fullstep.physics.memory.landmarks import Checkpointing, Counts, Landmark, landmarks
from fullstep.physics.memory.sharding import Reduction
from fullstep.physics.memory.tape import Profile

IN_FLIGHT_OFFLOADS = 2
"""blocks whose offloaded activations are on the GPU: one leaves, one arrives"""


class BlockCosts(NamedTuple):
    """One kind of block on this GPU, in bytes."""

    profile: Profile
    selective_kept: float
    """kept under selective checkpointing"""
    gathered: float
    """its parameters while put together; 0 where they are not divided, or stay put together (see ``gathered_whole``)"""
    unit: float
    """its parameters as one all-gather brings them; 0 where they are not divided"""
    reduction: Reduction
    gradients_left: float
    """of its weights' gradients, once its backward has ended"""
    copies: float
    """low-precision copies of its weights that autocast makes and backward needs"""
    adapter_copies: float
    """the same of its adapters, which train: they live until forward has ended"""


class RootCosts(NamedTuple):
    """Embedding, last norm and head, which FSDP has as its root unit, in bytes on this GPU."""

    head: HeadProfile
    copies: float
    """low-precision copy of the head's weights that autocast makes"""
    gathered: float
    """the unit while put together, and blocks that stay put together in part"""
    unit: float
    """its parameters as one all-gather brings them"""
    reduction: Reduction
    gradients_left: float
    """of the output matrix, from its backward on"""
    head_gradient: float
    """of the output matrix, as backward makes it; 0 where it does not train"""
    embedding_gradient: float
    """made at the very end of backward, beside all others where it is not simply one of them"""
    tied_sum: float
    """of the gradients of head and embedding that are one parameter, where it is a third tensor"""
    held_outputs: float
    """logits that the caller holds during backward"""


class BlockPhase(NamedTuple):
    """The worst moment among blocks, in bytes."""

    kept: float
    """by blocks for their own backward"""
    retained: float
    """what blocks that are done with have left behind (see ``retains_inputs``)"""
    work: float
    """of the block itself"""


@dataclass(slots=True, kw_only=True)
class Scene:
    """All that the walk needs to know; bytes on one GPU."""

    shape: ModelShape
    checkpointing: Checkpointing
    stream: float
    """one tensor of the stream between blocks"""
    weights: float
    optimizer_states: float
    gradients: float
    """all of them, as they stand before the optimizer step"""
    buffers: float
    """what is there all the time besides: workspaces, inputs, buckets"""
    blocks: tuple[BlockCosts, ...]
    root: RootCosts
    sharded: bool
    """FSDP puts units together and takes them apart"""
    caches_copies: bool
    """autocast keeps the copies of weights that train until forward has ended; those of frozen ones live as long as a tensor needs them"""
    gathered_whole: float
    """parameters that stay put together from forward to the end of backward (reshard_after_forward=False, ZeRO-3's live parameters)"""
    prefetches: bool
    copies_out: bool
    """an all-gather fills a flat buffer from which parameters are copied; in forward it lives until the next copy has ended (FSDP2)"""
    reentrant: bool
    retains_inputs: bool
    """inputs of recomputed blocks and their gradients live until backward has ended (see ``build_scene.retains_inputs``)"""
    offloads_activations: bool
    offloaded_weights: float = 0
    """in host memory"""
    step_temporaries: float = 0
    step_gradients: float
    """gradients when the optimizer steps: shards, also where they piled up whole before"""
    extra_step_gradients: float = 0
    first_block: int = 0
    """of the model, in this pipeline stage"""
    waiting: float = 0
    """activations of further micro-batches between their forward and their backward, in a pipeline"""
    exchanged: float = 0
    """of a block's work in backward, what attention exchanges with other parts of the row"""
    permanent_gradients: bool = False
    """gradients are there all the time, in buffers that backward adds to"""
    _worst: dict[At, tuple[float, str, tuple[float, ...]]] = field(default_factory=dict)
    block_phase: BlockPhase = field(default_factory=lambda: BlockPhase(0, 0, 0))

    def number(self, mark: Landmark) -> int:
        """Of a block in the whole model."""
        return self.first_block + mark.position

    @property
    def offloaded_activations(self) -> float:
        """What all blocks keep for backward in host memory."""
        return sum(count * kept_by(self, kind, ck) for kind, ck, count in landmarks(self.shape.layers, self.checkpointing)[1])

    def note(
        self,
        at: At,
        place: str,
        *,
        gradients: float = 0,
        activations: float = 0,
        logits_and_loss: float = 0,
        gathered_parameters: float = 0,
        temporaries: float = 0,
    ) -> None:
        """Keep the worst moment of each instant."""
        if at != "optimizer_step":
            activations += self.waiting
        more = gradients + activations + logits_and_loss + gathered_parameters + temporaries
        if at not in self._worst or more > self._worst[at][0]:
            self._worst[at] = (more, place, (gradients, activations, logits_and_loss, gathered_parameters, temporaries))

    def instant(self, at: At) -> Instant | None:
        """The worst moment that was noted; None: none was."""
        if at not in self._worst:
            return None
        _, place, (gradients, activations, logits_and_loss, gathered_parameters, temporaries) = self._worst[at]
        holdings = Holdings(
            weights=self.weights,
            gradients=gradients,
            optimizer_states=self.optimizer_states,
            activations=activations,
            logits_and_loss=logits_and_loss,
            gathered_parameters=gathered_parameters,
            temporaries=temporaries,
            buffers=self.buffers,
        )
        return Instant(at, holdings, place)


def waiting_bytes(scene: Scene) -> float:
    """What one micro-batch keeps in a pipeline stage between its forward and its backward [bytes]: of all its blocks, and its output.

    Source:
        torch.distributed.pipelining, stage.py (fwd_cache holds outputs and inputs); Megatron-LM frees the output's data
        (deallocate_pipeline_outputs), which is then one tensor too much here
    """
    _, everything = landmarks(scene.shape.layers, scene.checkpointing)
    return kept_before(scene, everything) + scene.stream


def empty_head() -> HeadProfile:
    """Of a pipeline stage that makes no logits."""
    return HeadProfile(Profile(0, 0, 0, 0, 0, 0, 0, 0, 0), 0, 0, 0, 0)


def kept_by(scene: Scene, kind: int, checkpointed: bool) -> float:
    """What one block keeps for backward."""
    costs = scene.blocks[kind]
    if checkpointed:
        return scene.stream
    return costs.selective_kept if scene.checkpointing == "selective" else costs.profile.saved


def kept_before(scene: Scene, counts: Counts) -> float:
    """What all those blocks keep on the GPU [bytes]; with activation offload no more than IN_FLIGHT_OFFLOADS of the largest."""
    total = sum(count * kept_by(scene, kind, checkpointed) for kind, checkpointed, count in counts)
    if scene.offloads_activations and counts:
        per_block = max(kept_by(scene, kind, checkpointed) for kind, checkpointed, _ in counts)
        return min(total, IN_FLIGHT_OFFLOADS * per_block)
    return total
