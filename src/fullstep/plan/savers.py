"""What saves memory without altering the training, and what each saver costs in speed.

Free: fused linear cross entropy, the fused optimizer, the best attention kernel, expandable segments.
Costly, in this order: recomputing some activations (selective), all of them (full), stepping inside backward, moving
activations to host memory, the optimizer there, the parameters there. The order stands in for step times until those are modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fullstep.job import Job

Changes = Mapping[str, object]
"""worksheet keys (dotted) and the value to set; None takes the key out"""


class Level(NamedTuple):
    """How much speed is given up for memory."""

    offload: int
    """0: nothing leaves the GPU; 1: activations; 2: the optimizer; 3: the optimizer and the parameters"""
    recompute: int
    """0: nothing is computed twice; 1: some; 2: every block; 3: every block, and gradients cannot be clipped or accumulated"""
    words: str
    changes: dict[str, object]

    @property
    def in_backward(self) -> bool:
        """The optimizer steps inside backward: one micro-batch is one step."""
        return "optimizer.in_backward" in self.changes


OFFLOADS_OPTIMIZER = 2
"""from this ``offload`` on, every step waits for host memory"""

LEVELS: tuple[Level, ...] = (
    Level(0, 0, "no recomputation", {"step.activation_checkpointing": "none"}),
    Level(0, 1, "selective recomputation", {"step.activation_checkpointing": "selective"}),
    Level(0, 2, "full recomputation", {"step.activation_checkpointing": "full"}),
    Level(
        0,
        3,
        "full recomputation, optimizer step fused into backward",
        {"step.activation_checkpointing": "full", "optimizer.in_backward": True},
    ),
    Level(1, 2, "activations offloaded", {"step.activation_checkpointing": "full", "step.activation_offload": True}),
    Level(2, 2, "optimizer offloaded", {"step.activation_checkpointing": "full", "layout.offload_optimizer": True}),
    Level(
        3,
        2,
        "optimizer and parameters offloaded",
        {"step.activation_checkpointing": "full", "layout.offload_optimizer": True, "layout.offload_parameters": True},
    ),
)
"""cheapest first. A level says nothing of the offloads that it does not name: those are off"""

_SWITCHES = ("step.activation_offload", "layout.offload_optimizer", "layout.offload_parameters", "optimizer.in_backward")


def level_changes(level: Level) -> dict[str, object]:
    """Every key that a level decides, what it does not name switched off.

    >>> level_changes(LEVELS[0])["layout.offload_optimizer"]
    False
    """
    return {**dict.fromkeys(_SWITCHES, False), **level.changes}


def as_written_level(job: Job) -> Level:
    """The level that the worksheet states, where ``plan.fixed`` allows no other."""
    return Level(0, 0, "as written", {
        "step.activation_checkpointing": job.step.activation_checkpointing,
        "step.activation_offload": job.step.activation_offload,
        "optimizer.in_backward": job.optimizer.in_backward,
        "layout.offload_optimizer": job.layout.offload_optimizer,
        "layout.offload_parameters": job.layout.offload_parameters,
    })  # fmt: skip


def level_of(job: Job) -> tuple[int, int]:
    """(offload, recompute) of a job, comparable with those of :data:`LEVELS`."""
    step, layout = job.step, job.layout
    offload = 3 if layout.offload_parameters else 2 if layout.offload_optimizer else 1 if step.activation_offload else 0
    recompute = 3 if job.optimizer.in_backward else {"none": 0, "selective": 1}.get(str(step.activation_checkpointing), 2)
    return offload, recompute


def level_words(job: Job) -> str:
    """What a job gives up in speed for memory: ``full recomputation, the optimizer offloaded``; empty: nothing."""
    offload, _ = level_of(job)
    every = job.step.activation_checkpointing
    words = [] if every == "none" else [f"every {every}. block recomputed" if isinstance(every, int) else f"{every} recomputation"]
    words += ["optimizer step fused into backward"] if job.optimizer.in_backward else []
    words += ["", "activations offloaded", "optimizer offloaded", "optimizer and parameters offloaded"][offload : offload + 1]
    return ", ".join(filter(None, words))


def free_savers(job: Job) -> dict[str, object]:
    """The changes that save memory at no cost in speed, as far as they change this job."""
    changes: dict[str, object] = {}
    attention = job.shape.blocks[0].attention
    plain_attention = not (attention.sinks or attention.alibi)  # soft-capping: FlashAttention 2.6 and newer have it
    card = job.machine.card
    if plain_attention and job.step.attention != "flash":
        best = "flash" if card is not None and card.has_flash_attention else "sdpa"
        if job.step.attention != best and not (best == "sdpa" and attention.logit_softcap):
            changes["step.attention"] = best
    if job.step.loss != "fused":
        changes["step.loss"] = "fused"
    if job.optimizer.implementation in ("foreach", "single") and job.optimizer.name in ("adamw", "adam", "sgd", "sgd_momentum"):
        changes["optimizer.implementation"] = "fused"
    if not job.step.expandable_segments:
        changes["step.expandable_segments"] = True
    return changes


WORDS: dict[str, str] = {
    "step.loss=fused": "fused linear cross entropy",
    "step.loss=chunked": "cross entropy in chunks",
    "step.attention=flash": "flash attention",
    "step.attention=sdpa": "sdpa attention",
    "step.expandable_segments=true": "expandable segments in the allocator",
    "step.activation_checkpointing=none": "no recomputation",
    "step.activation_checkpointing=selective": "selective recomputation of activations",
    "step.activation_checkpointing=full": "full recomputation of activations",
    "step.activation_offload=true": "activations offloaded to host memory",
    "step.activation_offload=false": "activations kept on the GPU",
    "optimizer.implementation=fused": "fused optimizer",
    "optimizer.in_backward=true": "optimizer step fused into backward (no gradient clipping)",
    "optimizer.in_backward=false": "optimizer step after backward",
    "layout.offload_optimizer=true": "optimizer offloaded to host memory",
    "layout.offload_optimizer=false": "optimizer kept on the GPU",
    "layout.offload_parameters=true": "parameters offloaded to host memory",
    "layout.offload_parameters=false": "parameters kept on the GPU",
}


def change_words(changes: Changes) -> str:
    """Changes in words, for people; keys without words of their own are shown as they stand in the worksheet, None as taken out.

    >>> change_words({"step.loss": "fused", "batch.micro_batch": 2, "layout.shards": None})
    'fused linear cross entropy, batch.micro_batch = 2, without layout.shards'
    """
    pieces = []
    for key, value in changes.items():
        if value is None:
            pieces.append(f"without {key}")
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        pieces.append(WORDS.get(f"{key}={text}", f"{key} = {text}"))
    return ", ".join(pieces)
