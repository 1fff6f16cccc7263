"""What the version of a framework says about its code: facts of releases, each with its source."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.job.habits import HUGGING_FACE, NOT_REENTRANT, RUNS_TRANSFORMERS, STACKS_EXPERTS, WINDOW_UNDER_SDPA, transformers_numbers
from fullstep.models import Block
from fullstep.physics.memory.kernels import FLOAT32

NEWEST = (10**6,)


def transformers_version(job: Job) -> tuple[int, ...]:
    """The version of transformers that a job runs with; newest where a framework has models of its own."""
    return transformers_numbers(job.step.framework, job.step.framework_version) or NEWEST


def is_reentrant(job: Job) -> bool:
    """Whether checkpointing is torch's reentrant kind: transformers before 5 (its default became False with 5.0).

    Source:
        transformers, modeling_utils.py gradient_checkpointing_enable
    """
    return job.step.framework in HUGGING_FACE and transformers_version(job) < NOT_REENTRANT


def attended_window(job: Job, block: Block) -> int | None:
    """Keys that a token sees at most; None: all before it. transformers before 4.40 left a window out under sdpa."""
    if job.step.attention == "sdpa" and transformers_version(job) < WINDOW_UNDER_SDPA:
        return None
    return block.attention.window


REPEATS_KEYS_UNDER_FLASH = frozenset(("mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "starcoder2"))
"""model types whose flash attention class copied keys and values to all heads (repeat_kv), until 4.48 gave all models one attention"""


def asks_for_grouped_keys(job: Job) -> bool:
    """transformers passes enable_gqa to sdpa since 4.53, instead of copying the keys to all heads."""
    return job.step.framework in RUNS_TRANSFORMERS and transformers_version(job) >= (4, 53)


def repeats_keys(job: Job, kernel: str) -> bool:
    """Keys and values are copied out to all heads before attention.

    Always in eager and efficient attention and in torch's own math (which does it itself). Under sdpa in transformers before 4.53 (later
    enable_gqa is used) and in torch-native code; under flash in the classes of ``REPEATS_KEYS_UNDER_FLASH`` before 4.48.

    Source:
        transformers, integrations/sdpa_attention.py; models/mistral/modeling_mistral.py of 4.47 and 4.48
    """
    if kernel in ("eager", "efficient", "math"):
        return True
    hugging_face = job.step.framework in RUNS_TRANSFORMERS
    if job.step.attention == "flash":
        return hugging_face and transformers_version(job) < (4, 48) and job.shape.model_type in REPEATS_KEYS_UNDER_FLASH
    if hugging_face:
        return not asks_for_grouped_keys(job)
    return job.step.framework in ("torchtune", "torchtitan", "litgpt")


def output_bytes_per_logit(job: Job, compute: int) -> int:
    """Bytes of the logits that a caller holds: Lightning Fabric, on which litgpt runs, converts a model's outputs to float32.

    Source: lightning/fabric/plugins/precision/half.py, HalfPrecision.convert_output.
    """
    return FLOAT32 if job.step.framework == "litgpt" else compute


def stacks_experts(job: Job) -> bool:
    """transformers keeps the experts of a block in one parameter since version 5; before, and elsewhere, they are modules."""
    return job.step.framework in RUNS_TRANSFORMERS and transformers_version(job) >= STACKS_EXPERTS


FLOAT32_SHARES = frozenset(("mixtral", "minimax", "deepseek_v3", "glm4_moe", "dots1"))
"""model types whose routers of transformers 5 give shares in float32; others cast them back to the stream's dtype"""


def weights_rows_in_float32(job: Job) -> bool:
    """Rows of experts times float32 shares are float32, and so are their copy in the tokens' order and their sum.

    Source:
        transformers 5.23, integrations/moe.py grouped_mm_experts_forward; the routers of models/mixtral, models/deepseek_v3
    """
    return stacks_experts(job) and job.shape.model_type in FLOAT32_SHARES
