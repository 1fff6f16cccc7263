"""Every key of the worksheet (schema 1) in one table: what it means, what it allows, what stands in when it is left out.

The reader, the flags, ``fullstep init``, docs/worksheet.md and the error messages are all made from this table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal[
    "choice", "integer", "number", "boolean", "text", "version", "names", "size", "money", "keys",
    "model_name", "config", "gpu", "count", "choice_or_integer", "boolean_or_integer",
]  # fmt: skip


class Key(NamedTuple):
    """One key. ``low`` and ``high`` bound numbers (``…_open``: the bound itself is not allowed); ``unit`` is that of the number."""

    section: str
    name: str
    kind: Kind
    default: str
    """what is used when the key is left out, in words"""
    explanation: str
    choices: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    """words that are understood, but refused by name because the formulas do not cover them"""
    low: float = 0
    high: float = 10**15
    low_open: bool = False
    high_open: bool = False
    unit: str = ""
    flag: str = ""
    """its flag where that is not made from the name by the general rule"""
    example: str = ""
    """a value in TOML for ``fullstep init``"""

    @property
    def dotted(self) -> str:
        """Section and name, as messages and ``--set`` write it."""
        return f"{self.section}.{self.name}" if self.section else self.name


SECTIONS: dict[str, str] = {
    "model": "which model is trained",
    "method": "what of it is trained",
    "precision": "number formats of everything that is kept",
    "optimizer": "the rule that updates the weights",
    "batch": "rows and tokens of one step",
    "step": "kernels, savers and habits of the training framework",
    "layout": "how the training is spread over the GPUs",
    "machine": "the GPUs and servers it runs on",
    "data": "how much is trained on",
    "evaluation": "evaluation between the steps",
    "checkpoint": "what may be lost, and how it is saved",
    "goal": "time, money and reserve",
    "plan": "what `fullstep plan` may change",
    "measured": "figures of a pilot of this very worksheet; they outrank the estimate",
}

TRAINED_DTYPES = ("float32", "bfloat16", "float16")
COVERED_METHODS = ("full", "lora", "qlora", "dora", "ia3", "prefix_tuning", "bottleneck")
TRACED_METHODS = (
    "adalora", "adamss", "adaption_prompt", "beft", "boft", "bone", "c3a", "cartridge", "cpt", "deft", "delora", "fourierft",
    "frod", "glora", "gralora", "hira", "hra", "lily", "ln_tuning", "loha", "lokr", "miss", "multitask_prompt_tuning", "oft", "osf",
    "p_tuning", "peanut", "poly", "prompt_tuning", "psoft", "pvera", "randlora", "road", "shadow", "shira", "supertuning",
    "tinylora", "trainable_tokens", "unilora", "vblora", "vera", "waveft", "xlora",
)  # fmt: skip
"""kinds that peft knows and the formulas do not"""
COVERED_OBJECTIVES = ("sft", "dpo", "orpo", "kto", "reward")
REFUSED_OBJECTIVES = ("ppo", "grpo")
FRAMEWORKS = (
    "transformers", "torchtune", "torchtitan", "megatron", "deepspeed", "unsloth", "litgpt",
    "llamafactory", "axolotl", "fms_acceleration", "fsdp_qlora", "torch",
)  # fmt: skip
OPTIMIZERS = (
    "adamw", "adam", "sgd", "sgd_momentum", "adafactor", "lion", "muon", "adamw_8bit", "adamw_4bit", "lion_8bit",
    "paged_adamw", "paged_adamw_8bit", "galore", "apollo",
)  # fmt: skip
STRATEGIES = ("single", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp", "layer_split")
HOURS = 10**6
MANY = 10**9


def _flag(section: str, name: str, default: str, text: str) -> Key:
    return Key(section, name, "boolean", default, text)


def _choice(section: str, name: str, choices: tuple[str, ...], default: str, text: str, *, flag: str = "") -> Key:
    return Key(section, name, "choice", default, text, choices=choices, flag=flag)


def _whole(section: str, name: str, span: tuple[int, int], default: str, text: str, *, unit: str = "", flag: str = "") -> Key:
    return Key(section, name, "integer", default, text, low=span[0], high=span[1], unit=unit, flag=flag)


def _number(section: str, name: str, span: tuple[float, float], default: str, text: str, *, unit: str = "") -> Key:
    return Key(section, name, "number", default, text, low=span[0], high=span[1], unit=unit)


def _positive(section: str, name: str, high: float, default: str, text: str, *, unit: str, flag: str = "", low: float = 0) -> Key:
    return Key(section, name, "number", default, text, low=low, low_open=not low, high=high, unit=unit, flag=flag)


def _size(section: str, name: str, unit: str, default: str, text: str) -> Key:
    return Key(section, name, "size", default, text, low=0, low_open=True, high=10**18 if unit == "bytes" else 10**9, unit=unit)


KEYS: tuple[Key, ...] = (
    Key("", "schema", "choice_or_integer", "1", "version of the worksheet's keys", low=1, high=1, example="1"),
    # model
    Key("model", "name", "model_name", "–", "hub id of the model; online any id (its config only, never weights, never its code)",
        flag="model", example='"meta-llama/Llama-3.1-8B"'),
    Key("model", "config", "config", "–", "path of a Hugging Face config file or folder, or an inline table of its keys; wins over name",
        example='"path/to/config.json"'),
    # method
    Key("method", "kind", "choice", "full", "full fine-tuning, or the kind of adapter by peft's name in lower case",
        choices=COVERED_METHODS, uncovered=TRACED_METHODS, flag="method"),
    _whole("method", "rank", (1, 65536), "16", "rank of the adapter (prefix_tuning: virtual tokens; bottleneck: width)"),
    Key("method", "targets", "names", "peft's default for the model type, else all-linear",
        'modules that carry an adapter: "all-linear" (every linear but the head) or a list of module names',
        example='["q_proj", "v_proj"]'),
    Key("method", "train_modules", "names", "none", "modules trained in full beside the adapter", example='["embed_tokens", "lm_head"]'),
    _number("method", "dropout", (0, 1), "0", "dropout of the adapter's input; above 0 the adapter keeps another copy of that input"),
    _choice("method", "quantization", ("none", "nf4", "fp4", "int8", "fp8", "gptq", "mxfp4"), "nf4 for qlora, else none",
            "number format of the frozen base"),
    _flag("method", "double_quantization", "false", "the scales of a 4-bit base are quantized as well"),
    _flag("method", "upcast_unquantized", "true for qlora with transformers (not for gptq)",
          "what stays unquantized is kept in float32, as prepare_model_for_kbit_training does"),
    Key("method", "objective", "choice", "sft", "what the loss compares", choices=COVERED_OBJECTIVES, uncovered=REFUSED_OBJECTIVES),
    # precision
    _choice("precision", "weights", TRAINED_DTYPES, "bfloat16", "dtype of the weights that are trained (full) or of the frozen base"),
    _choice("precision", "compute", (*TRAINED_DTYPES, "fp8"), "bfloat16",
            "dtype under autocast, or in which sharded weights are gathered (fp8 gathers bfloat16)"),
    _flag("precision", "autocast",
          "single, ddp, layer_split: true when weights differ from compute, and for adapters with transformers, axolotl, llamafactory;"
          " else false",
          "the forward pass runs under torch.autocast (Trainer: bf16=True)"),
    _choice("precision", "gradients", TRAINED_DTYPES, "as what is trained; as compute with master_weights", "dtype of kept gradients"),
    _choice("precision", "adapters", TRAINED_DTYPES, "float32", "dtype of the adapter's weights"),
    _choice("precision", "reduce", TRAINED_DTYPES, "float32 when sharded, else as gradients",
            "dtype in which gradients are summed over ranks"),
    _flag("precision", "master_weights", "true for zero1, zero2, zero3 and megatron when what trains is bfloat16 or float16, else false",
          "a separate float32 copy beside low-precision weights, with optimizer states in float32"),
    # optimizer
    _choice("optimizer", "name", OPTIMIZERS, "adamw", "the optimizer", flag="optimizer"),
    _choice("optimizer", "implementation", ("foreach", "fused", "single", "deepspeed"), "what the framework would take (torch: foreach)",
            "how the optimizer's kernels walk over the parameters"),
    _choice("optimizer", "state_dtype", (*TRAINED_DTYPES, "int8", "fp8"),
            "as what is trained; float32 with master_weights; int8 for 8-bit and 4-bit", "dtype of the optimizer's states"),
    _flag("optimizer", "in_backward", "false", "the step is fused into backward, gradients are freed as they appear"),
    # batch
    _whole("batch", "sequence_tokens", (1, 10**8), "2048", "tokens of one row as the GPU sees it (padded or packed)", unit="tokens"),
    _whole("batch", "micro_batch", (1, 10**6), "1", "rows per data-parallel rank and forward pass",
           unit="rows", flag="micro-batch"),
    _whole("batch", "accumulation", (1, MANY), "1, or what global_rows needs", "micro-batches per optimizer step"),
    _whole("batch", "global_rows", (1, MANY), "–", "rows per optimizer step over all ranks; accumulation follows from it", unit="rows"),
    _flag("batch", "packed", "true", "false: padded rows, whose attention mask changes the kernel that sdpa picks"),
    _number("batch", "mean_sample_tokens", (1, 10**8), "sequence_tokens", "useful tokens of a row when not packed", unit="tokens"),
    # step
    Key("step", "activation_checkpointing", "choice_or_integer", "none",
        "none, full (every block), selective (matrix products and attention outputs are kept), or n: every n-th block",
        choices=("none", "full", "selective"), low=1, high=10000),
    _choice("step", "attention", ("eager", "sdpa", "flash"), "sdpa", "attention kernel; sdpa: the one that CUDA would pick"),
    _choice("step", "loss", ("standard", "inplace", "chunked", "fused"), "standard",
            "standard (as the framework does it), inplace (over materialised float32 logits), chunked, fused (no logits tensor)"),
    _flag("step", "activation_offload", "false", "kept activations move to host memory"),
    _flag("step", "compile", "false", "the model runs under torch.compile"),
    _choice("step", "framework", FRAMEWORKS, "transformers", "the training framework, for its memory habits"),
    Key("step", "framework_version", "version", "newest known", "its version; habits change with it", example='"5.13"'),
    _choice("step", "loss_input_dtype", TRAINED_DTYPES, "by framework and version", "dtype that the loss sees"),
    _flag("step", "keeps_outputs", "by framework and version", "the model's outputs stay alive during backward"),
    _choice("step", "gradients_cleared", ("after_step", "before_backward"), "by framework and version",
            "when gradients are freed; before_backward: they are still there in the next forward pass"),
    _flag("step", "expandable_segments", "false", "the CUDA allocator runs with expandable_segments:True"),
    # layout
    _choice("layout", "strategy", STRATEGIES, "single on one GPU, else fsdp", "how state and work are spread over the GPUs"),
    _choice("layout", "implementation", ("fsdp1", "fsdp2", "deepspeed", "torch", "megatron"), "fsdp2, deepspeed or torch by strategy",
            "who implements the strategy"),
    _whole("layout", "shards", (1, 10**6), "all data-parallel ranks; hsdp: GPUs per node",
           "data-parallel ranks among which state is divided"),
    _whole("layout", "tensor", (1, 10**4), "1", "tensor-parallel degree"),
    _whole("layout", "pipeline", (1, 10**4), "1", "pipeline degree"),
    _whole("layout", "context", (1, 10**4), "1", "context-parallel degree"),
    _whole("layout", "expert", (1, 10**4), "1", "expert-parallel degree"),
    Key("layout", "reshard_after_forward", "boolean_or_integer", "true; fsdp_grad_op: false",
        "gathered weights are freed after forward (an integer: resharded among that many ranks)", low=2, high=10**6),
    _flag("layout", "sync_every_micro_batch", "true for zero2, zero3, fsdp, fsdp_grad_op and hsdp, else false",
          "false: no_sync during accumulation"),
    _size("layout", "bucket_bytes", "bytes", "the implementation's", "size of a communication bucket"),
    _whole("layout", "prefetch_units", (0, 10**4), "the implementation's", "units gathered ahead of their use"),
    _whole("layout", "max_live_parameters", (0, 10**15), "the implementation's",
           "DeepSpeed's stage3_max_live_parameters", unit="parameters"),
    _flag("layout", "offload_optimizer", "false", "optimizer states live in host memory"),
    _flag("layout", "offload_parameters", "false", "sharded weights live in host memory"),
    _choice("layout", "loading", ("every_rank", "rank0", "meta"), "by framework", "who holds the whole model while it loads"),
    # machine
    Key("machine", "gpu", "gpu", "–", "the card by its name in the catalogue", example='"H100-SXM"'),
    Key("machine", "gpus", "count", "1", "GPUs per node", low=1, high=1024),
    _whole("machine", "nodes", (1, 10**5), "1", "servers"),
    _size("machine", "gpu_memory_gib", "GiB", "the catalogue's", "memory of one GPU as its driver reports it"),
    _choice("machine", "link", ("nvswitch", "nvlink_bridge", "pcie_p2p", "pcie_host"), "the catalogue's",
            "what joins the GPUs of one node"),
    _positive("machine", "network_gbit_s", 10**6, "unknown", "line rate of the network per node and direction", unit="Gbit/s",
              low=0.001),
    _flag("machine", "rdma", "unknown", "the network moves data without the processors (InfiniBand, RoCE)"),
    _size("machine", "host_memory_gib", "GiB", "unknown", "host memory per node"),
    _whole("machine", "cpu_cores", (1, 10**5), "unknown", "processor cores per node"),
    _size("machine", "disk_gb", "GB", "unknown", "disk left for this job per node"),
    _positive("machine", "storage_write_gb_s", 10**5, "unknown", "storage write rate left for this job per node", unit="GB/s"),
    _positive("machine", "storage_read_gb_s", 10**5, "unknown", "storage read rate left for this job per node", unit="GB/s"),
    # data
    _positive("data", "tokens", 10**18, "–", "tokens of the data set", unit="tokens", flag="data-tokens"),
    _positive("data", "examples", 10**15, "–", "examples of the data set, instead of tokens", unit="rows", flag="data-examples"),
    _positive("data", "steps", 10**12, "–", "optimizer steps of an epoch, instead of tokens", unit="steps", flag="data-steps"),
    _positive("data", "epochs", 10**6, "1", "times that the data set is passed", unit="epochs"),
    # evaluation
    _whole("evaluation", "every_steps", (1, MANY), "no evaluation", "optimizer steps between evaluations", unit="steps"),
    _whole("evaluation", "rows", (1, MANY), "no evaluation", "rows of the evaluation set", unit="rows", flag="evaluation-rows"),
    _whole("evaluation", "micro_batch", (1, 10**6), "batch.micro_batch", "rows per rank and forward pass in evaluation", unit="rows"),
    _flag("evaluation", "keeps_logits", "false", "the logits of the whole set are kept on the GPU"),
    _whole("evaluation", "generate_tokens", (0, 10**8), "0", "tokens generated per row in evaluation", unit="tokens"),
    # checkpoint
    _positive("checkpoint", "lose_at_most_minutes", 10**6, "30", "work that a failure may cost", unit="minutes"),
    _positive("checkpoint", "write_within_minutes", 10**6, "5", "time in which a checkpoint must be written", unit="minutes"),
    _positive("checkpoint", "restore_within_minutes", 10**6, "15", "time in which it must be read back", unit="minutes"),
    _whole("checkpoint", "keep", (1, 10**5), "2", "checkpoints kept on disk", flag="checkpoint-keep"),
    _choice("checkpoint", "format", ("sharded", "full"), "sharded", "one file per rank, or one gathered state dict",
            flag="checkpoint-format"),
    _flag("checkpoint", "asynchronous", "false", "written while training goes on"),
    _choice("checkpoint", "async_mode", ("thread", "process"), "thread", "who writes it then"),
    # goal
    _positive("goal", "finish_within_hours", HOURS, "–", "time that the whole run may take", unit="hours"),
    Key("goal", "budget", "money", "–", "money that it may cost", high=10**12, example='"1000"'),
    _choice("goal", "currency", ("USD", "EUR", "RUB"), "USD", "currency of the budget"),
    _whole("goal", "max_nodes", (1, 10**5), "–", "servers up to which `fullstep plan` may search"),
    _whole("goal", "runs", (1, 10**6), "1", "runs of this kind"),
    _number("goal", "idle_hours_between_runs", (0, HOURS), "0", "hours between two runs: idle, stopped or given back", unit="hours"),
    Key("goal", "reserve_fraction", "number", "0.05", "share of each GPU's memory that is kept free", low=0, high=1, high_open=True),
    # plan
    Key("plan", "fixed", "keys", "–", "keys that `fullstep plan` must not change", example='["step.attention"]'),
    # measured
    _size("measured", "allocated_peak_gib", "GiB", "–", "torch.cuda.max_memory_allocated of one GPU"),
    _size("measured", "reserved_peak_gib", "GiB", "–", "torch.cuda.max_memory_reserved of one GPU"),
    _size("measured", "device_peak_gib", "GiB", "–", "what nvidia-smi showed of one GPU"),
    _positive("measured", "step_seconds", HOURS, "–", "time of one optimizer step", unit="seconds", low=1e-6),
    _number("measured", "exposed_communication_fraction", (0, 1), "–", "share of step_seconds in which communication was not hidden"),
    _size("measured", "checkpoint_gb", "GB", "–", "size of one checkpoint"),
)  # fmt: skip

BY_SECTION: dict[str, dict[str, Key]] = {section: {} for section in SECTIONS}
for _key in KEYS:
    if _key.section:
        BY_SECTION[_key.section][_key.name] = _key
BY_DOTTED: dict[str, Key] = {key.dotted: key for key in KEYS}


def allowed_text(key: Key) -> str:
    """What a key allows, for messages and the docs.

    >>> allowed_text(BY_DOTTED["batch.micro_batch"])
    'a whole number from 1 to 1,000,000'
    """
    low, high = _plain(key.low), _plain(key.high)
    span = f"{'above' if key.low_open else 'from'} {low} {'and below' if key.high_open else 'to'} {high}"
    size = f'a number of {key.unit} {span}, or a size with its unit like "80GB" or "80GiB"'
    choices = ", ".join(key.choices)
    return {
        "choice": choices,
        "integer": f"a whole number from {low} to {high}",
        "number": f"a number {span}",
        "boolean": "true or false",
        "text": "text",
        "version": 'a version in quotes, like "4.48.1"',
        "names": '"all-linear" or a list of module names' if key.name == "targets" else "a list of module names",
        "size": size,
        "money": 'an amount from 0, as a number or like "1500.00"',
        "keys": 'a list of worksheet keys, like ["layout.strategy"]',
        "model_name": "a hub id, like meta-llama/Llama-3.1-8B",
        "config": "a path, or a table of a Hugging Face config's keys",
        "gpu": "a card of the catalogue, like H100-SXM or 8xH100-SXM",
        "count": f"a whole number from {low} to {high}, or like 8x",
        "choice_or_integer": f"{choices} or a whole number from {low} to {high}" if choices else low,
        "boolean_or_integer": f"true, false or a whole number from {low} to {high}",
    }[key.kind]


def _plain(number: float) -> str:
    return f"{number:,}" if number < 10**10 else f"10^{len(str(int(number))) - 1}"
