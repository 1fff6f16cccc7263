"""A trace made by hand, so that the exact text does not hang on torch: 25 GiB at the loss of the last micro-batch."""

from __future__ import annotations

from fullstep.ledger import Caution, Holdings, Instant, LiveTensor, ModuleShare, Moment, Trace
from fullstep.quantities import GIB

BLOCKS = 32
STATE = 15
"""GiB of weights, gradients and optimizer states in the second micro-batch"""


def timeline(micro_batches: int = 2, blocks: int = BLOCKS) -> tuple[Moment, ...]:
    """State, blocks that keep an eighth of a GiB each, six more at the loss, then everything given back block by block."""
    moments: list[Moment] = []
    for micro in range(1, micro_batches + 1):
        state = STATE - 4 * (micro == 1)

        def add(phase: str, block: int | None, gib: float, flops: float, micro: int = micro) -> None:
            size = int(gib * GIB)
            moments.append(Moment(2, micro, phase, block, size, size, int(flops * 1e12)))  # type: ignore[arg-type]

        add("inputs", None, state, 0)
        for block in range(blocks):
            add("forward", block, state + (block + 1) / 8, 2)
        add("loss", None, state + 10, 4)
        for block in reversed(range(blocks)):
            add("backward", block, state + 1 + (block + 1) / 8, 4)
    moments.append(Moment(2, 0, "optimizer_step", None, 19 * GIB, 15 * GIB, 0))
    moments.append(Moment(2, 0, "gradients_cleared", None, 11 * GIB, 11 * GIB, 0))
    return tuple(moments)


TRACE = Trace(
    parameters=8030261248, trainable_parameters=8030261248,
    instants=(
        Instant("forward", Holdings(4 * GIB, 0, 7 * GIB, 4 * GIB, 0, GIB)),
        Instant("second_forward", Holdings(4 * GIB, 4 * GIB, 7 * GIB, 4 * GIB, 5 * GIB, GIB), "block 31"),
        Instant("optimizer_step", Holdings(4 * GIB, 4 * GIB, 7 * GIB, 0, 0, 0, int(3.5 * GIB))),
    ),
    peak_at="second_forward", allocated_peak_bytes=25 * GIB, reserved_peak_bytes=28 * GIB, host_bytes=0, timeline=timeline(),
    largest=(
        LiveTensor(7 * GIB, 582, "optimizer_states", (1, 2048, 4096), "float32", "model.layers.*.mlp.down_proj", "aten.zeros_like",
                   "adamw.py:150 state['exp_avg'] = torch.zeros_like("),
        LiveTensor(4 * GIB, 291, "weights", (512, 4096), "float32", "model.layers.*.self_attn.q_proj", "aten.empty", ""),
        LiveTensor(int(2.5 * GIB), 1, "logits_and_loss", (1, 4096, 128256), "float32", "lm_head", "aten._to_copy",
                   "loss_utils.py:56 logits = logits.float()"),
    ),
    modules=(
        ModuleShare("model.layers.*.mlp", "optimizer_states", 5 * GIB), ModuleShare("lm_head", "logits_and_loss", 5 * GIB),
        ModuleShare("model.layers.*.input_layernorm", "activations", 80 * 2**20),
    ),
    flops_per_step=392 * 10**12, blocks=BLOCKS, blocks_traced=7, operations=17432, segments=493, out_of_memory="",
    notes=(Caution("F102", "an invented note"),), versions=(("torch", "2.13.0"), ("transformers", "5.23.0")), seconds=7.94,
)  # fmt: skip
"""11 GiB of state in the first micro-batch and 15 in the second. FLOPs: 2 x (32 x 2 + 4 + 32 x 4)"""
