"""What must hold for every worksheet, whatever the model: on decoders of random widths and on random ways of training."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fullstep.errors import InputError
from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.ledger import Instant, MemoryEstimate
from fullstep.models import supported_model_types
from fullstep.physics import estimate_memory

Mapping = dict[str, Any]

OPTIMIZERS = (
    "adamw", "adam", "sgd", "sgd_momentum", "adafactor", "lion", "muon", "adamw_8bit", "adamw_4bit", "lion_8bit",
    "paged_adamw", "paged_adamw_8bit", "galore", "apollo",
)  # fmt: skip
KINDS = ("llama", "qwen3", "gemma2", "olmo2", "cohere", "phi", "gpt2", "gpt_neox", "bloom", "mixtral", "deepseek_v3", "gpt_oss")
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp", "layer_split")
GPUS = ("H100-SXM", "A100-SXM-80", "RTX-4090", None)
BITS_APART = 1e-9
"""sums of floats in another order"""


@st.composite
def configs(draw: st.DrawFn) -> Mapping:
    """A config.json of one of the kinds of decoder that differ in their memory."""
    kind = draw(st.sampled_from(KINDS))
    groups, heads_per_group = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 8)))
    heads, head_dim = groups * heads_per_group, draw(st.sampled_from((8, 64, 128, 320)))
    width, layers = heads * head_dim, draw(st.integers(1, 5))
    config: Mapping = {"model_type": kind, "vocab_size": draw(st.sampled_from((32, 32_000, 250_000)))}
    if kind == "gpt2":
        return config | {"n_embd": width, "n_head": heads, "n_layer": layers, "n_positions": 4096}
    if kind == "bloom":
        return config | {"hidden_size": width, "n_head": heads, "n_layer": layers}
    config |= {"hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers}
    config |= {"intermediate_size": draw(st.sampled_from((8, 1_024, 40_000))), "tie_word_embeddings": draw(st.booleans())}
    if kind == "deepseek_v3":
        return config | _latent(draw, heads)
    config["num_key_value_heads"] = groups
    if kind in ("qwen3", "gemma2", "gpt_oss"):
        config["head_dim"] = head_dim
    if kind in ("mixtral", "gpt_oss"):
        experts = draw(st.sampled_from((2, 8)))
        config |= {"num_local_experts": experts, "num_experts_per_tok": draw(st.sampled_from((1, 2, experts)))}
    return config


def _latent(draw: st.DrawFn, heads: int) -> Mapping:
    return {
        "num_key_value_heads": heads, "q_lora_rank": draw(st.sampled_from((None, 16, 256))), "kv_lora_rank": 64,
        "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": draw(st.sampled_from((32, 48))), "n_routed_experts": 8,
        "num_experts_per_tok": draw(st.sampled_from((2, 8))), "moe_intermediate_size": 32, "n_shared_experts": 1,
        "first_k_dense_replace": draw(st.sampled_from((0, 1))), "n_group": 1, "topk_group": 1,
    }  # fmt: skip


@st.composite
def worksheets(draw: st.DrawFn) -> Mapping:
    """Any way of training such a decoder, odd ones too."""

    def one(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    gpus, nodes = one(1, 1, 2, 8), one(1, 1, 2)
    strategy = "single" if gpus * nodes == 1 else one(*STRATEGIES)
    kind = one("full", "full", "lora", "qlora", "dora", "ia3", "prefix_tuning", "bottleneck")
    method: Mapping = {"kind": kind}
    if kind in ("lora", "qlora", "dora"):
        method |= {"targets": "all-linear", "rank": one(1, 16), "dropout": one(0, 0.1), "train_modules": one([], ["lm_head"])}
    if kind == "qlora":
        method |= {"quantization": one("nf4", "fp4", "int8", "gptq", "mxfp4"), "double_quantization": one(True, False)}
    machine: Mapping = {"gpus": gpus, "nodes": nodes}
    if gpu := one(*GPUS):
        machine["gpu"] = gpu
    return {
        "model": {"config": draw(configs())},
        "method": method,
        "precision": {"weights": one("bfloat16", "float32", "float16"), "compute": one("bfloat16", "float16", "float32")},
        "optimizer": {"name": one("adamw", *OPTIMIZERS), "in_backward": one(False, False, True)},
        "batch": {
            "sequence_tokens": one(1, 128, 4096), "micro_batch": one(1, 3), "accumulation": one(1, 1, 4), "packed": one(True, True, False),
        },
        "step": {
            "activation_checkpointing": one("none", "full", "selective", 2, 3), "attention": one("sdpa", "eager", "flash"),
            "loss": one("standard", "inplace", "chunked", "fused"), "activation_offload": one(False, False, True),
            "compile": one(False, False, True), "expandable_segments": one(False, True), "keeps_outputs": one(False, True),
            "framework": one("transformers", "torchtune", "torchtitan", "litgpt", "torch", "unsloth", "deepspeed"),
            "gradients_cleared": one("after_step", "before_backward"),
        },
        "layout": {"strategy": strategy, "offload_optimizer": one(False, False, True), "offload_parameters": one(False, False, True)},
        "machine": machine,
        "evaluation": one({}, {"rows": 10, "micro_batch": 2, "keeps_logits": True, "generate_tokens": 16}),
        "checkpoint": {"format": one("sharded", "full"), "asynchronous": one(False, True)},
    }  # fmt: skip


def job_of(worksheet: Mapping) -> Job:
    """The job, or another example where the worksheet contradicts itself."""
    try:
        return complete(worksheet_from_mapping(worksheet, "random"))
    except InputError:
        assume(False)
        raise


def estimate(worksheet: Mapping, **changes: Any) -> MemoryEstimate:
    """Of the worksheet with keys changed, written like ``layout__shards=2``."""
    changed = {section: dict(keys) for section, keys in worksheet.items()}
    for name, value in changes.items():
        section, _, key = name.partition("__")
        changed.setdefault(section, {})[key] = value
    return estimate_memory(job_of(changed))


def instant(found: MemoryEstimate, at: str) -> Instant:
    return next(instant for instant in found.instants if instant.at == at)


def persistent(found: MemoryEstimate) -> float:
    """Weights, gradients and optimizer states at the optimizer step."""
    holdings = instant(found, "optimizer_step").holdings
    return holdings.weights + holdings.gradients + holdings.optimizer_states


def at_most(smaller: float, larger: float) -> bool:
    return smaller <= larger * (1 + BITS_APART) + 1


often = settings(
    max_examples=int(os.environ.get("EXAMPLES", "150")),  # more of them: make test-slow
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@often
@given(worksheets())
def test_an_estimate_is_whole(worksheet: Mapping) -> None:
    """Holdings are there or not, never less; they add up; the peak is the largest instant; bounds and counters are in order."""
    job = job_of(worksheet)
    found = estimate_memory(job)
    for moment in found.instants:
        assert all(size >= 0 for size in moment.holdings), moment
        assert moment.allocated_bytes == pytest.approx(sum(moment.holdings._asdict().values()))
    largest = max(moment.allocated_bytes for moment in found.instants)
    assert instant(found, found.peak_at).allocated_bytes == largest == found.allocated.likely
    assert ("second_forward" in [moment.at for moment in found.instants]) == (job.batch.accumulation > 1)
    for counter in (found.allocated, found.reserved, found.device, found.needed):
        assert 0 < counter.low <= counter.likely <= counter.high
    assert found.allocated.likely <= found.reserved.likely <= found.device.likely
    assert found.allocated.likely <= found.needed.likely
    others = [found.other_peaks.load, found.other_peaks.evaluation, found.other_peaks.save, found.host_bytes]
    assert all(size >= 0 for size in others if size is not None)
    assert found.trainable_parameters > 0
    assert (found.other_peaks.evaluation is None) == (not worksheet["evaluation"])


@often
@given(worksheets(), st.sampled_from((2, 5)))
def test_longer_rows_and_more_of_them_never_need_less(worksheet: Mapping, times: int) -> None:
    before, batch = estimate(worksheet), worksheet["batch"]
    longer = estimate(worksheet, batch__sequence_tokens=batch["sequence_tokens"] * times)
    wider = estimate(worksheet, batch__micro_batch=batch["micro_batch"] * times)
    for more in (longer, wider):
        assert at_most(before.allocated.likely, more.allocated.likely)
        assert at_most(before.needed.likely, more.needed.likely)
        assert at_most(before.needed.high, more.needed.high)
        for moment in before.instants:
            assert at_most(moment.allocated_bytes, instant(more, moment.at).allocated_bytes), moment.at


@often
@given(worksheets(), st.sampled_from(("fsdp", "fsdp_grad_op", "hsdp", "zero1", "zero2", "zero3")))
def test_more_shards_never_need_more_persistent_memory(worksheet: Mapping, strategy: str) -> None:
    worksheet = worksheet | {"machine": worksheet["machine"] | {"gpus": 8, "nodes": 1}}
    sizes = [persistent(estimate(worksheet, layout__strategy=strategy, layout__shards=shards)) for shards in (1, 2, 4, 8)]
    assert all(at_most(more, fewer) for fewer, more in pairwise(sizes)), sizes


@often
@given(worksheets())
def test_ddp_divides_nothing(worksheet: Mapping) -> None:
    worksheet["layout"].pop("offload_optimizer")
    alone = estimate(worksheet, layout__strategy="single", machine__gpus=1, machine__nodes=1)
    replicas = estimate(worksheet, layout__strategy="ddp", machine__gpus=8, machine__nodes=2)
    assert persistent(replicas) == persistent(alone)
    assert at_most(alone.allocated.likely, replicas.allocated.likely)


@often
@given(worksheets(), st.integers(1, 8))
def test_qlora_keeps_no_more_than_lora_and_lora_no_more_than_full(worksheet: Mapping, rank: int) -> None:
    """Under equal settings: one set of targets, adapters and trained weights in one dtype, what is not quantized left as it is.

    The rank is small beside every width; an adapter of the rank of its matrix has more elements than that matrix. With gradients and
    states in host memory the GPU holds nothing but weights, and adapters are more of them: so nothing is offloaded. ZeRO-3 divides
    16-bit weights and not 4-bit ones.
    """
    assume(worksheet["layout"]["strategy"] != "zero3")
    worksheet = worksheet | {"layout": {"strategy": worksheet["layout"]["strategy"]}}
    config, adapters = worksheet["model"]["config"], {"targets": "all-linear", "rank": rank}
    assume(rank * 16 <= min(config.get("hidden_size", config.get("n_embd", 0)), config.get("intermediate_size", 1_024)))
    weights = worksheet["precision"]["weights"]
    same = {"precision__adapters": weights, "precision__master_weights": False, "optimizer__in_backward": False}
    full = estimate(worksheet | {"method": {"kind": "full"}}, **same)
    lora = estimate(worksheet | {"method": {"kind": "lora"} | adapters}, **same)
    qlora = estimate(worksheet | {"method": {"kind": "qlora", "upcast_unquantized": False} | adapters}, **same)
    assert at_most(persistent(qlora), persistent(lora))
    assert at_most(persistent(lora), persistent(full))


@often
@given(worksheets())
def test_checkpointing_keeps_no_more_activations(worksheet: Mapping) -> None:
    """Where the loss is: every block has run, none has gone back."""
    kept = {
        saver: instant(estimate(worksheet, step__activation_checkpointing=saver), "loss").holdings.activations
        for saver in ("none", "full", 2)
    }  # fmt: skip
    assert at_most(kept["full"], kept[2])
    assert at_most(kept[2], kept["none"])


@pytest.mark.parametrize("model_type", supported_model_types())
@pytest.mark.parametrize("method", [{"kind": "full"}, {"kind": "qlora", "targets": "all-linear"}], ids=lambda method: method["kind"])
def test_every_model_type_is_estimated(model_type: str, method: Mapping) -> None:
    stated = {"deepseek_v2": {"num_experts_per_tok": 6}, "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2}}
    config = {"model_type": model_type} | stated.get(model_type, {})
    found = estimate({"model": {"config": config}, "method": method, "machine": {"gpus": 8}})
    assert found.needed.likely > 0
    assert all(size >= 0 for moment in found.instants for size in moment.holdings)
