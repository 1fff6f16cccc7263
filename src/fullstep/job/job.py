"""A job: a worksheet with every default filled in. This is what physics and lab read; nothing in it is unsaid.

Field names are the worksheet's keys (contract, schema 1). Sizes that a worksheet gives in GiB or GB are bytes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fullstep.evidence import Assumption
from fullstep.hardware import Card, Link
from fullstep.job.from_records import NO_RECORDS, FromRecords
from fullstep.job.worksheet import Worksheet
from fullstep.models import ModelShape
from fullstep.quantities import DType

MethodKind = Literal[
    "full", "lora", "qlora", "dora", "ia3", "prefix_tuning", "bottleneck",
    "adalora", "adamss", "adaption_prompt", "beft", "boft", "bone", "c3a", "cartridge", "cpt", "deft", "delora", "fourierft",
    "frod", "glora", "gralora", "hira", "hra", "lily", "ln_tuning", "loha", "lokr", "miss", "multitask_prompt_tuning", "oft", "osf",
    "p_tuning", "peanut", "poly", "prompt_tuning", "psoft", "pvera", "randlora", "road", "shadow", "shira", "supertuning",
    "tinylora", "trainable_tokens", "unilora", "vblora", "vera", "waveft", "xlora",
]  # fmt: skip
Quantization = Literal["none", "nf4", "fp4", "int8", "fp8", "gptq", "mxfp4"]
Objective = Literal["sft", "dpo", "orpo", "kto", "reward", "ppo", "grpo"]
Strategy = Literal["single", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp", "layer_split"]
LayoutImplementation = Literal["fsdp1", "fsdp2", "deepspeed", "torch", "megatron"]
FSDP_STRATEGIES: frozenset[Strategy] = frozenset(("fsdp", "fsdp_grad_op", "hsdp"))
ZERO_STRATEGIES: frozenset[Strategy] = frozenset(("zero1", "zero2", "zero3"))
AttentionSetting = Literal["eager", "sdpa", "flash"]
LossKernel = Literal["standard", "inplace", "chunked", "fused"]
GradientsCleared = Literal["after_step", "before_backward"]
Loading = Literal["every_rank", "rank0", "meta"]
Framework = Literal[
    "transformers", "torchtune", "torchtitan", "megatron", "deepspeed", "unsloth", "litgpt",
    "llamafactory", "axolotl", "fms_acceleration", "fsdp_qlora", "torch",
]  # fmt: skip
OptimizerName = Literal[
    "adamw", "adam", "sgd", "sgd_momentum", "adafactor", "lion", "muon", "adamw_8bit", "adamw_4bit", "lion_8bit",
    "paged_adamw", "paged_adamw_8bit", "galore", "apollo",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    kind: MethodKind
    rank: int
    targets: tuple[str, ...]
    """module names of the model's class that carry adapters, already resolved from "all-linear" or peft's default; () for full.
    As stated, and () where nothing is stated, for models and kinds that only a trace covers"""
    train_modules: tuple[str, ...]
    dropout: float
    stacked_experts: bool
    """targets that are experts are adapted as the one parameter that transformers 5 has of them, not as modules"""
    quantization: Quantization
    double_quantization: bool
    upcast_unquantized: bool
    objective: Objective

    @property
    def is_quantized(self) -> bool:
        return self.quantization != "none"

    @property
    def is_low_rank(self) -> bool:
        return self.kind in ("lora", "qlora", "dora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    weights: DType
    compute: DType
    autocast: bool
    gradients: DType
    adapters: DType
    reduce: DType
    master_weights: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    name: OptimizerName
    implementation: Literal["foreach", "fused", "single", "deepspeed"]
    state_dtype: DType
    in_backward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    sequence_tokens: int
    micro_batch: int
    accumulation: int
    packed: bool
    mean_sample_tokens: float

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one data-parallel rank."""
        return self.sequence_tokens * self.micro_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    activation_checkpointing: Literal["none", "full", "selective"] | int
    attention: AttentionSetting
    loss: LossKernel
    activation_offload: bool
    compile: bool
    framework: Framework
    framework_version: str
    loss_input_dtype: DType
    keeps_outputs: bool
    gradients_cleared: GradientsCleared
    expandable_segments: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    strategy: Strategy
    implementation: LayoutImplementation
    shards: int
    """data-parallel ranks among which state is divided (1 for single, ddp, layer_split)"""
    data_parallel: int
    """data-parallel ranks in all: gpus * nodes / (tensor * pipeline * context)"""
    tensor: int
    pipeline: int
    context: int
    expert: int
    reshard_after_forward: bool | int
    sync_every_micro_batch: bool
    bucket_bytes: int | None
    prefetch_units: int | None
    max_live_parameters: int | None
    offload_optimizer: bool
    offload_parameters: bool
    loading: Loading

    @property
    def is_fsdp(self) -> bool:
        """Units of parameters are put together and taken apart."""
        return self.strategy in FSDP_STRATEGIES

    @property
    def is_zero(self) -> bool:
        return self.strategy in ZERO_STRATEGIES

    @property
    def state_ranks(self) -> int:
        """Ranks among which state is divided, context ranks among them; 1 for single, ddp, layer_split."""
        return self.shards * self.context if self.is_fsdp or self.is_zero else 1

    @property
    def divides_parameters(self) -> bool:
        return self.is_fsdp or self.strategy == "zero3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    card: Card | None
    """None: the worksheet names no GPU"""
    gpus: int
    nodes: int
    gpu_memory_bytes: int | None
    """total as stated or as the catalogue has it"""
    usable_bytes: int | None
    """what torch can use of one GPU"""
    link: Link | None
    network_gbit_s: float | None
    rdma: bool | None
    host_memory_bytes: int | None
    cpu_cores: int | None
    disk_bytes: int | None
    storage_write_bytes_per_second: float | None
    storage_read_bytes_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    tokens: float | None
    examples: float | None
    steps: float | None
    epochs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """None in ``every_steps`` and ``rows``: no evaluation."""

    every_steps: int | None
    rows: int | None
    micro_batch: int
    keeps_logits: bool
    generate_tokens: int

    @property
    def happens(self) -> bool:
        return self.every_steps is not None or self.rows is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    lose_at_most_minutes: float
    write_within_minutes: float
    restore_within_minutes: float
    keep: int
    format: Literal["sharded", "full"]
    asynchronous: bool
    async_mode: Literal["thread", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    finish_within_hours: float | None
    budget: str | None
    """a decimal string"""
    currency: Literal["USD", "EUR", "RUB"]
    max_nodes: int | None
    runs: int
    idle_hours_between_runs: float
    reserve_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of a job but the shape of the model, which a trace does without."""

    method: Method
    precision: Precision
    optimizer: Optimizer
    batch: Batch
    step: Step
    layout: Layout
    machine: Machine
    data: Data
    evaluation: Evaluation
    checkpoint: Checkpoint
    goal: Goal
    measured: Mapping[str, float] = field(default_factory=dict)
    """figures of a pilot under their worksheet keys"""
    from_records: FromRecords = NO_RECORDS
    """what was measured of this job or of near ones by others; nothing of it stands in the worksheet"""
    fixed: frozenset[str] = frozenset()
    """keys that plan must not change"""
    assumptions: tuple[Assumption, ...] = ()
    cautions: tuple[tuple[str, str], ...] = ()
    """(code, text) found while reading the worksheet"""
    worksheet: Worksheet = field(default_factory=Worksheet)
    """the validated worksheet that this was made from, nested as in the file, defaults not filled in (a Mapping)"""

    @property
    def trained_dtype(self) -> DType:
        """Of what trains: the weights, or the adapter."""
        return self.precision.weights if self.method.kind == "full" else self.precision.adapters

    @property
    def rows_per_step(self) -> int:
        """Of one optimizer step, over all ranks."""
        return self.batch.micro_batch * self.batch.accumulation * self.layout.data_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Settings):
    """Settings for a model whose every parameter is known."""

    shape: ModelShape
