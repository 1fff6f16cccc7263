"""How frameworks put a checkpoint into files: which ones, how many, and what they add to what they hold."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from fullstep.job import Job
from fullstep.job.habits import HUGGING_FACE
from fullstep.ledger.checkpoint import CheckpointPart, Container, Content
from fullstep.physics.checkpointing.contents import Contents, StateTensors, contents_of, saves_frozen, state_tensors
from fullstep.physics.checkpointing.figures import likely_bytes
from fullstep.physics.checkpointing.tensors import Tensors, counted, pieces, stored_tensors, trained_tensors
from fullstep.physics.memory.framework import transformers_version
from fullstep.quantities import DTYPE_BYTES, GB

_SHARD_BYTES, _SHARD_BYTES_BEFORE_5 = 50e9, 5e9
_TRAINER_FILES, _TRAINER_FILES_BY_SHARDS, _DEEPSPEED_FILES = 5, 2, 2
"""scheduler.pt and trainer_state.json, with the model training_args.bin and two more: config.json and generation_config.json, of adapters
adapter_config.json and README.md; latest and zero_to_fp32.py"""
_GROUP_SCALARS, _SCHEDULER_SCALARS, _POSITION_SCALARS, _STEP_BYTES = 12, 9, 3, 4.0
"""an AdamW group's settings and its names; a scheduler's numbers; the step, the epoch and the position in the data; one float32"""


class Written(NamedTuple):
    """One checkpoint on disk."""

    container: Container
    parts: tuple[CheckpointPart, ...]
    files: int
    measured_bytes: float | None = None
    """by a pilot; None: it was not measured"""

    @property
    def predicted_bytes(self) -> float:
        """What the parts add up to [bytes]."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def size_bytes(self) -> float:
        """As measured, else as predicted [bytes]."""
        return self.predicted_bytes if self.measured_bytes is None else self.measured_bytes


def container_of(job: Job) -> Container:
    """The form in which a job's framework saves.

    ZeRO: DeepSpeed's. ``checkpoint.format = full`` from shards: put together on rank 0. Trainers of transformers with whole replicas:
    its folder. Everything else, and every asynchronous save without DeepSpeed: torch.distributed.checkpoint.

    Source:
        transformers 5.23, Trainer._save_checkpoint, save_model; accelerate, utils/fsdp_utils.py; DeepSpeed, engine.save_checkpoint
    """
    layout, wanted = job.layout, job.checkpoint
    whole = not (layout.is_fsdp or layout.implementation == "megatron" or layout.tensor * layout.pipeline > 1)
    if layout.is_zero:
        return "deepspeed"
    if wanted.asynchronous:
        return "distributed"
    if saves_by_trainer(job) and whole:
        return "trainer" if job.method.kind == "full" else "adapter"
    return "full" if wanted.format == "full" else "distributed"


def saves_by_trainer(job: Job) -> bool:
    """transformers' Trainer makes the folder, itself or under a framework that is built on it."""
    return job.step.framework in HUGGING_FACE and job.step.framework != "deepspeed"


def ranks_of_all(job: Job) -> int:
    """Processes that train."""
    return 1 if job.layout.strategy == "layer_split" else job.machine.gpus * job.machine.nodes


def written(job: Job, container: Container | None = None) -> Written:
    """One checkpoint as it lies on disk, container and all [bytes]. A pilot's ``measured.checkpoint_gb`` outranks what is predicted.

    Args:
        job: complete
        container: in which form; None: as the job's framework does (:func:`container_of`)

    Valid:
        a tokenizer that is saved along is not counted; within 1 % of real saves also for models of 0.6 M parameters
    """
    kind = container or container_of(job)
    if kind == "distributed":
        found = _distributed(job, own_loop=container is not None)
    else:
        found = _deepspeed(job) if kind == "deepspeed" else _folder(job, kind)
    measured = job.measured.get("checkpoint_gb")
    return found if measured is None else found._replace(measured_bytes=measured * GB)


def distributed_overhead_bytes(tensors: tuple[Tensors, ...], states: StateTensors, ranks: int, copies: int = 1, extra: int = 0) -> float:
    """What torch.distributed.checkpoint adds to what it holds [bytes]::

        archive * pieces * (copies + divided states) + (archive + 4) * small states + scalar * (scalars + group + extra)
        + name * tensors + metadata: key * keys + piece * written pieces

    Each piece of a tensor is a zip of its own, each number another, and ``.metadata`` has an entry for each: a model of few parameters has
    as much of it as a large one.

    Example: 57 tensors on 2 ranks with AdamW: ``114 * 3 + 57`` archives of 1,577 and 24 of 1,261 bytes, 57 names of 44: 0.66 MB, and
    0.12 MB of ``.metadata``: 0.24 % of 27 M parameters.

    Args:
        tensors: that are saved
        states: what the optimizer keeps of each
        ranks: among which each is divided
        copies: of the tensors beside the states: weights, float32 copies
        extra: plain numbers beside the group's

    Source:
        torch 2.13, distributed/checkpoint/filesystem.py _write_item and metadata.py; sizes as measured, ``data/figures.csv``
    """
    count, cut = counted(tensors), pieces(tensors, ranks)
    archives, small = cut * (copies + states.divided), count * states.small
    scalars = count * states.scalars + _GROUP_SCALARS + extra
    keys = count * (copies + states.divided) + small + scalars
    size = likely_bytes("tensor_archive") * (archives + small) + likely_bytes("scalar_archive") * scalars
    size += likely_bytes("group_name") * count
    return size + likely_bytes("metadata_key") * keys + likely_bytes("metadata_piece") * (archives + small)


def _distributed(job: Job, *, own_loop: bool) -> Written:
    """Replicas are written once; transformers' Trainer makes two folders, of the model and of the optimizer, with its own files beside."""
    layout, contents, ranks = job.layout, contents_of(job), ranks_of_all(job)
    among = (layout.state_ranks if layout.is_fsdp or layout.implementation == "megatron" else 1) * layout.tensor
    tensors, states = trained_tensors(job), state_tensors(job.optimizer.name)
    copies = 1 + int(contents.masters > 0)
    if saves_by_trainer(job) and not own_loop and not job.checkpoint.asynchronous:  # the Trainer has no asynchronous save
        overhead = distributed_overhead_bytes(tensors, states, among, copies)
        small = [each for each in _trainer_parts(ranks, adapter=False) if each[0] != "settings"]
        parts = [*_common(contents), *small, ("container", overhead + counted(tensors) * states.small * _STEP_BYTES)]
        files = 2 * (ranks + 1) + ranks + _TRAINER_FILES_BY_SHARDS
    else:
        scheduler, position = (number * likely_bytes("scalar_archive") for number in (_SCHEDULER_SCALARS, _POSITION_SCALARS))
        overhead = distributed_overhead_bytes(tensors, states, among, copies, _SCHEDULER_SCALARS + _POSITION_SCALARS)
        overhead += counted(tensors) * states.small * _STEP_BYTES - scheduler - position
        progress: list[tuple[Content, float]] = [("scheduler", scheduler), ("data_position", position)]
        parts = [*_common(contents), ("rng", ranks * likely_bytes("rng_state")), *progress, ("container", overhead)]
        files = ranks + 1
    return Written("distributed", _as_parts(parts), files)


def _folder(job: Job, kind: Container) -> Written:
    """Model in safetensors and optimizer in one torch.save. From shards, accelerate writes the model a second time beside the Trainer's."""
    contents, tensors, states = contents_of(job), trained_tensors(job), state_tensors(job.optimizer.name)
    count, ranks, is_trainer = counted(tensors), ranks_of_all(job), saves_by_trainer(job)
    models = weight_files(job, contents.trained)
    again = contents.trained if kind == "full" and is_trainer else 0.0
    record = likely_bytes("tensor_record")
    overhead = likely_bytes("safetensors_entry") * count + record * count * (states.divided + states.small) + likely_bytes("tensor_archive")
    overhead += record * count if again else 0.0
    overhead += states.small * count * 64.0  # a step of 4 bytes is filled up
    small = _trainer_parts(ranks, adapter=job.method.kind != "full")
    if not is_trainer:
        small = [("rng", ranks * likely_bytes("rng_state")), ("scheduler", likely_bytes("scheduler"))]
    parts = [*_common(contents), ("weights_again", again), *small, ("container", overhead)]
    files = models + int(models > 1) + 1 + int(again > 0) + ranks + (_TRAINER_FILES if is_trainer else 1)
    return Written(kind, _as_parts(parts), files)


def _deepspeed(job: Job) -> Written:
    """Float32 partitions and moments by rank; model states: 16-bit weights once per model rank at stages 1 and 2, placeholders at stage 3.

    At stage 3 the weights are in the float32 partitions alone; the frozen part, where it is saved, in pieces beside them. The Trainer adds
    its model file at stages 1 and 2 (at stage 3 only with ``stage3_gather_16bit_weights_on_model_save``, which is off by default).
    """
    layout, contents = job.layout, contents_of(job)
    ranks, models = ranks_of_all(job), layout.tensor * layout.pipeline
    is_three = layout.strategy == "zero3"
    if is_three and contents.masters:
        contents = contents._replace(weights=0.0, adapters=0.0)
    count = counted(trained_tensors(job)) + (counted(stored_tensors(job)) if saves_frozen(job) else 0)
    states = state_tensors(job.optimizer.name)
    flat = ranks * (1 + states.divided) * likely_bytes("tensor_record")  # one flat tensor of each kind by rank
    overhead = flat + (0.0 if is_three else count * likely_bytes("tensor_record")) + 2 * ranks * likely_bytes("tensor_archive")
    files = ranks + (ranks if is_three else models) + _DEEPSPEED_FILES
    parts: list[tuple[Content, float]] = [*_common(contents), ("container", overhead)]
    if saves_by_trainer(job):
        again = 0.0 if is_three else contents.trained
        parts += [("weights_again", again), *_trainer_parts(ranks, adapter=job.method.kind != "full")]
        files += ranks + _TRAINER_FILES + (0 if is_three else weight_files(job, again))
    else:
        parts += [("scheduler", likely_bytes("scheduler"))]
    return Written("deepspeed", _as_parts(parts), files)


def _common(contents: Contents) -> list[tuple[Content, float]]:
    return [
        ("weights", contents.weights), ("frozen_weights", contents.frozen), ("adapters", contents.adapters),
        ("master_weights", contents.masters), ("optimizer_states", contents.states),
    ]  # fmt: skip


def _trainer_parts(ranks: int, *, adapter: bool) -> list[tuple[Content, float]]:
    settings = likely_bytes("trainer_settings") + (likely_bytes("adapter_settings") if adapter else 0.0)
    return [
        ("rng", ranks * likely_bytes("rng_state")), ("scheduler", likely_bytes("scheduler")),
        ("data_position", likely_bytes("trainer_state")), ("settings", settings),
    ]  # fmt: skip


def _as_parts(parts: list[tuple[Content, float]]) -> tuple[CheckpointPart, ...]:
    return tuple(CheckpointPart(what, size) for what, size in parts if size)


def shard_bytes(job: Job) -> float:
    """At most so much goes into one safetensors file: 50 GB since transformers 5, 5 GB before.

    Source:
        transformers, modeling_utils.py save_pretrained, max_shard_size
    """
    return _SHARD_BYTES if transformers_version(job) >= (5,) else _SHARD_BYTES_BEFORE_5


def weight_files(job: Job, size_bytes: float) -> int:
    """Files that hold weights of a size, at least: a tensor is not divided, so that the last one of a file may leave room.

    Args:
        job: whose framework writes them
        size_bytes: of all [bytes]
    """
    return max(1, ceil(size_bytes / shard_bytes(job)))


def export_bytes(job: Job) -> float:
    """What is taken out at the end of a run: all weights in the dtype in which they train, or the adapter and modules beside it [bytes].

    Example: Llama-3.1-8B: 16.1 GB from bfloat16 weights, 32.1 GB from float32.

    Source:
        transformers, save_pretrained; peft, save_pretrained

    Valid:
        one copy: DCP's consolidation into safetensors keeps its own shards beside it, twice the size
    """
    contents = contents_of(job)
    if job.method.kind == "full":
        return float(job.shape.parameters * DTYPE_BYTES[job.precision.weights])
    return contents.trained
