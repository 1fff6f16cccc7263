"""Traffic of cutting the work on one token or one row: tensor, pipeline, context and expert parallelism, and layers on several GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from fullstep.job import Job
from fullstep.models import Block
from fullstep.physics.memory.choices import block_kernels, compute_bytes, residual_bytes
from fullstep.physics.memory.cut import COLUMNS
from fullstep.physics.memory.framework import is_reentrant
from fullstep.physics.memory.kernels import FLOAT32
from fullstep.physics.memory.rank import context_exchange, is_sequence_parallel
from fullstep.physics.network.collective import Collective, Group, Kind, Phase
from fullstep.physics.network.groups import context_group, expert_group, tensor_group
from fullstep.physics.network.moved import checkpointed_blocks, stage_of
from fullstep.quantities import DTYPE_BYTES

ROW_PRODUCTS = 2
"""products of a block that are cut by rows and so end in a sum: attention's output and the feed-forward layer's"""
LOSS_REDUCTIONS = 3
"""of a loss over a cut vocabulary: the largest logit, the sum of exponentials, the logit of the label; float32 per token"""


def stream_bytes(job: Job) -> float:
    """One tensor of the stream between blocks as one rank computes it [bytes]: rows * tokens / context * hidden * bytes."""
    return job.batch.tokens / job.layout.context * job.shape.hidden * compute_bytes(job)


def input_reductions(job: Job, block: Block) -> int:
    """All-reduces of an input's gradient in a block's backward, under tensor parallelism.

    Where products cut by columns read one shared input, its gradient is summed once for attention and once for the feed-forward layer: 2.
    Where each takes the input for itself, as in the plans of transformers, each sums its own: 5 in a llama block (q, k, v, gate, up).

    Source:
        Shoeybi et al. 2019, section 3; transformers, distributed/tensor_parallel.py ColwiseParallel; counted on two ranks: 7 all-reduces
        per block and micro-batch in place of 4
    """
    if job.step.framework in ("torchtune", "litgpt") or is_sequence_parallel(job):
        return 2
    return sum(linear.role in COLUMNS for linear in block.linears)


def forwards_again(job: Job, checkpointed: int) -> int:
    """All-reduces of forward that recomputation repeats over ``checkpointed`` blocks.

    torch's own checkpointing stops once everything saved is there again, before a block's last sum; the reentrant kind and Megatron's run
    the block to its end.

    Source:
        torch.utils.checkpoint, early_stop; Megatron-LM, tensor_parallel/random.py CheckpointFunction
    """
    to_its_end = is_reentrant(job) or job.step.framework == "megatron"
    return checkpointed * (ROW_PRODUCTS if to_its_end else ROW_PRODUCTS - 1)


def tensor_collectives(job: Job) -> Iterator[Collective]:
    """Sums over tensor ranks, of one stream tensor b s h each: two in a block's forward, two or more in its backward, and the head's.

    Sequence parallel: each sum is an all-gather and a reduce-scatter, as many bytes together.

    Example: 32 blocks, one row of 4,096 tokens, 4,096 wide, bfloat16, two ranks: 33.6 MB a sum; transformers' 7 a block send
    ``7 * 32 * 2 * 1 / 2 * 33.6 MB`` = 7.5 GB per rank.

    Source:
        Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.2

    Valid:
        counted within 0.8 % for torch's plan; left out: gradients of norms, and inputs that Megatron gathers again for weights' gradients
    """
    stage, group, micro = stage_of(job), tensor_group(job), job.batch.accumulation
    size, blocks = stream_bytes(job), len(stage.layers)
    again = sum(forwards_again(job, count) for count in checkpointed_blocks(job, stage).values())
    backward = sum(input_reductions(job, job.shape.blocks[kind]) for kind in stage.layers) + again
    sums: tuple[tuple[Phase, int], ...] = (("forward", ROW_PRODUCTS * blocks), ("backward", backward))
    kinds: tuple[Kind, ...] = ("all_gather", "reduce_scatter") if is_sequence_parallel(job) else ("all_reduce",)
    for kind in kinds:
        for phase, count in sums:
            yield Collective("sum over tensor ranks", kind, size, *group, micro * count, phase, False)
    if stage.head:
        yield from _head(job, kinds, micro, size)


def _head(job: Job, kinds: tuple[Kind, ...], micro: int, size: float) -> Iterator[Collective]:
    """The output matrix cut by vocabulary: its input's gradient is summed; its logits meet in the loss or are gathered."""
    group, tokens = tensor_group(job), job.batch.tokens / job.layout.context
    for kind in kinds:
        yield Collective("sum at the head", kind, size, *group, micro, "backward", False)
    if is_sequence_parallel(job):
        yield Collective("loss over a cut vocabulary", "all_reduce", 4 * tokens, *group, LOSS_REDUCTIONS * micro, "forward", False)
    else:
        logits = tokens * job.shape.vocabulary * compute_bytes(job)
        yield Collective("gather logits", "all_gather", logits, *group, micro, "forward", False)


def pipeline_collectives(job: Job) -> Iterator[Collective]:
    """Sends between stages: a stream tensor forward and its gradient back per micro-batch; a middle stage sends both.

    ::

        b * s * h * bytes     each way; / tensor where the stream is cut by tokens
        v * h * bytes         all-reduced once a step between first and last stage: gradients of an embedding that is the head too

    Example: one row of 4,096 tokens, 4,096 wide, bfloat16, 8 micro-batches: ``8 * 33.6`` MB forward and as much back.

    Source:
        Narayanan et al. 2021, section 2.2 and 3.2; counted at the boundary of hosts within 0.3 %; Megatron-LM,
        distributed/finalize_model_grads.py, _allreduce_word_embedding_grads

    Valid:
        one chunk of blocks per stage; an interleaved schedule sends as many times more as it has chunks
    """
    layout, machine = job.layout, job.machine
    size = job.batch.tokens / layout.context * job.shape.hidden * residual_bytes(job)
    size /= layout.tensor if is_sequence_parallel(job) else 1
    nodes = 2 if machine.nodes > 1 else 1
    crossing = min(1.0, machine.nodes / layout.pipeline)  # a stage is gpus * nodes / pipeline GPUs in a row; those at a node's end cross
    ways: tuple[tuple[str, Phase], ...] = (("send to the next stage", "forward"), ("send to the stage before", "backward"))
    for what, phase in ways[: 2 if layout.pipeline > 2 else 1]:
        yield Collective(what, "send", size, 2, nodes, 2 // nodes, job.batch.accumulation, phase, False, crossing=crossing)
    if job.shape.tied and (job.method.kind == "full" or job.shape.embedding_name in job.method.train_modules):
        gradient = job.shape.embedding_parameters / layout.tensor * DTYPE_BYTES[job.precision.gradients]
        what = "sum gradients of embedding and head"
        ends = 2 / layout.pipeline  # first and last stage
        yield Collective(what, "all_reduce", gradient, 2, nodes, 2 // nodes, 1, "after_backward", False, taking_part=ends)


def context_collectives(job: Job) -> Iterator[Collective]:
    """How a row cut among c ranks attends to all of itself, per block; kv: keys and values of one rank, k: heads times their widths.

    ::

        ring       (c - 1) messages of kv = b * s / c * k * bytes forward, twice as much backward
        gather     one all-gather of c * kv forward and one backward, and c messages of kv's gradient in float32
        heads      all-to-all of query, key, value and output, each b * s / c * width * bytes, forward and backward

    With fewer heads of keys than ranks each rank still needs a whole one of all tokens: c heads travel. torch divides the row around sdpa:
    keys that a class copied out to all heads before (torchtitan) travel as copies.

    Example: keys and values of 1,024 each, 8,192 tokens over 4 ranks, bfloat16: 3 messages of ``2048 * 2048 * 2`` = 8.4 MB.

    Source:
        Liu et al. 2023, Ring attention, section 3; torch 2.13, distributed/tensor/experimental/_context_parallel/_attention.py
        (_AllGatherRotater, _templated_ring_attention_backward); Jacobs et al. 2023, DeepSpeed Ulysses, section 3.2
    """
    stage, group, micro, exchange = stage_of(job), context_group(job), job.batch.accumulation, context_exchange(job)
    tokens = job.batch.tokens / job.layout.context * compute_bytes(job) / job.layout.tensor
    again = checkpointed_blocks(job, stage)
    for kind in dict.fromkeys(stage.layers):
        shape, count = job.shape.blocks[kind].attention, stage.layers.count(kind)
        copied = exchange == "gather" and block_kernels(job, job.shape.blocks[kind]).repeats_keys
        heads = shape.heads if copied else max(shape.key_value_heads, group.ranks * job.layout.tensor if exchange == "heads" else 1)
        keys = heads * (shape.head_dim + shape.value_head_dim) * tokens
        queries = shape.heads * (shape.head_dim + shape.value_head_dim) * tokens
        gradients = keys * FLOAT32 / compute_bytes(job)
        passes: tuple[tuple[Phase, int], ...] = (("forward", count), ("backward", count + again.get(kind, 0)))
        for phase, times in passes:
            if exchange == "heads":
                yield Collective("exchange heads for tokens", "all_to_all", queries + keys, *group, micro * times, phase, False)
            elif exchange == "gather":
                yield Collective("gather keys and values", "all_gather", keys * group.ranks, *group, micro * times, phase, True)
            else:
                yield _handed_on("hand keys and values on", keys, micro * (group.ranks - 1) * times, phase, group)
        if exchange == "gather":
            yield _handed_on("hand gradients of keys and values on", gradients, micro * group.ranks * count, "backward", group)
        elif exchange == "ring":
            yield _handed_on("hand gradients of keys and values on", keys, micro * (group.ranks - 1) * count, "backward", group)


def _handed_on(what: str, size: float, times: int, phase: Phase, group: Group) -> Collective:
    """Messages from each rank to the next, beside the attention to the part that is there."""
    nodes = min(2, group.nodes)
    return Collective(what, "send", size, 2, nodes, 2 // nodes, times, phase, True)


def expert_collectives(job: Job) -> Iterator[Collective]:
    """Tokens sent to their experts and back, per mixture block: two all-to-alls forward, two backward, two more where it is recomputed.

    ::

        (e - 1) / e * tokens * experts per token * h * bytes     sent per rank and call

    Example: 4,096 tokens to 8 experts each, 2,048 wide, bfloat16, 8 ranks: ``7 / 8 * 134`` MB a call.

    Source:
        Lepikhin et al. 2020, GShard, section 3.2; counted at the boundary of hosts within 0.4 %

    Valid:
        tokens spread evenly over the ranks
    """
    stage, group, micro = stage_of(job), expert_group(job), job.batch.accumulation
    again = checkpointed_blocks(job, stage)
    for kind in dict.fromkeys(stage.layers):
        layer, count = job.shape.blocks[kind].feed_forward, stage.layers.count(kind)
        if not layer.experts:
            continue
        size = stream_bytes(job) * layer.experts_per_token / (job.layout.tensor if is_sequence_parallel(job) else 1)
        passes: tuple[tuple[Phase, int], ...] = (("forward", 2 * count), ("backward", 2 * (count + again.get(kind, 0))))
        for phase, times in passes:
            yield Collective("send tokens to experts and back", "all_to_all", size, *group, micro * times, phase, False)


def layer_split_collectives(job: Job) -> Iterator[Collective]:
    """One process, its blocks on several GPUs: the stream is copied from each to the next, and its gradient back.

    ::

        b * s * h * bytes * (gpus - 1)     forward, and backward, per micro-batch

    Source:
        accelerate, hooks.py AlignDevicesHook: inputs are moved to where a module's weights are
    """
    size, gpus = float(job.batch.tokens * job.shape.hidden * residual_bytes(job)), job.machine.gpus
    phases: tuple[Phase, ...] = ("forward", "backward")
    for phase in phases:
        yield Collective("copy to the next GPU", "send", size, gpus, 1, gpus, job.batch.accumulation * (gpus - 1), phase, False)
