"""What is trained: every kind of peft against peft's own count on real tensors; what is refused, by its key."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.job.keys import TRACED_METHODS

pytestmark = pytest.mark.real_classes

SMALL = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 500, "tie_word_embeddings": True,
}  # fmt: skip
STATED: dict[str, dict[str, Any]] = {
    "c3a": {"rank": 64}, "adaption_prompt": {"rank": 10}, "osf": {"rank": 64}, "trainable_tokens": {"rank": 3},
}  # fmt: skip
"""what a worksheet of the kind says beside it"""
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("LoraConfig", {"r": 16}),
    "dora": ("LoraConfig", {"r": 16, "use_dora": True}),
    "ia3": ("IA3Config", {}),
    "prefix_tuning": ("PrefixTuningConfig", {"num_virtual_tokens": 16}),
    "adalora": ("AdaLoraConfig", {"total_step": 10}),
    "adaption_prompt": ("AdaptionPromptConfig", {"adapter_len": 10, "adapter_layers": 2}),
    "beft": ("BeftConfig", {}),
    "boft": ("BOFTConfig", {}),
    "c3a": ("C3AConfig", {"block_size": 64}),
    "cartridge": ("CartridgeConfig", {"num_virtual_tokens": 16}),
    "deft": ("DeftConfig", {}),
    "delora": ("DeloraConfig", {}),
    "fourierft": ("FourierFTConfig", {}),
    "glora": ("GloraConfig", {}),
    "gralora": ("GraloraConfig", {}),
    "hira": ("HiraConfig", {}),
    "hra": ("HRAConfig", {}),
    "lily": ("LilyConfig", {}),
    "ln_tuning": ("LNTuningConfig", {}),
    "loha": ("LoHaConfig", {}),
    "lokr": ("LoKrConfig", {}),
    "miss": ("MissConfig", {}),
    "multitask_prompt_tuning": ("MultitaskPromptTuningConfig", {"num_virtual_tokens": 16, "num_tasks": 1}),
    "oft": ("OFTConfig", {}),
    "osf": ("OSFConfig", {"effective_rank": 256 - 64}),
    "p_tuning": ("PromptEncoderConfig", {"num_virtual_tokens": 16}),
    "peanut": ("PeanutConfig", {}),
    "poly": ("PolyConfig", {}),
    "prompt_tuning": ("PromptTuningConfig", {"num_virtual_tokens": 16}),
    "psoft": ("PsoftConfig", {}),
    "pvera": ("PveraConfig", {}),
    "randlora": ("RandLoraConfig", {}),
    "road": ("RoadConfig", {}),
    "shadow": ("ShadowConfig", {}),
    "supertuning": ("SupertuningConfig", {}),
    "tinylora": ("TinyLoraConfig", {}),
    "trainable_tokens": ("TrainableTokensConfig", {"token_indices": [0, 1, 2]}),
    "unilora": ("UniLoraConfig", {}),
    "vblora": ("VBLoRAConfig", {}),
    "vera": ("VeraConfig", {}),
    "waveft": ("WaveFTConfig", {}),
}
"""the kind as peft's users write it; where nothing stands, peft's default for a Llama"""
REFUSED = ("adamss", "bone", "bottleneck", "cpt", "frod", "shira", "xlora")


def worksheet(**sections: dict[str, Any]) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model": {"config": copy.deepcopy(SMALL)},
        "precision": {"weights": "bfloat16", "compute": "bfloat16", "autocast": False},
        "batch": {"sequence_tokens": 32, "micro_batch": 2},
        "machine": {"gpu": "L40S"},
    }
    for name, keys in sections.items():
        base[name] = {**base.get(name, {}), **keys}
    return base


def own_count(kind: str) -> int:
    """Parameters that peft trains on real tensors."""
    import peft  # noqa: PLC0415 - of the extra lab
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: PLC0415

    name, keys = OWN[kind]
    model = AutoModelForCausalLM.from_config(LlamaConfig(**{k: v for k, v in SMALL.items() if k != "model_type"}), dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft tells of settings that have no effect
        adapted = peft.get_peft_model(model, getattr(peft, name)(task_type="CAUSAL_LM", **keys))
    return sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)


def test_every_kind_is_either_traced_or_refused() -> None:
    assert set(OWN) | set(REFUSED) == {"lora", "dora", "ia3", "prefix_tuning", "bottleneck", *TRACED_METHODS}


@pytest.mark.parametrize("kind", OWN)
def test_trains_what_peft_trains_on_real_tensors(kind: str, traced: Any) -> None:
    found = traced(worksheet(method={"kind": kind, **STATED.get(kind, {})}))
    assert found.trainable_parameters == own_count(kind)


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_by_name(kind: str, ask: Any) -> None:
    answer = ask(worksheet(method={"kind": kind}))
    assert answer["unsupported"][0]["where"] == "method.kind"
    assert answer["unsupported"][0]["found"].startswith(f'"{kind}", ')


@pytest.mark.parametrize("kind", ["prefix_tuning", "cartridge"])
def test_tokens_in_the_cache_and_recomputation_exclude_each_other(kind: str, ask: Any) -> None:
    answer = ask(worksheet(method={"kind": kind}, step={"activation_checkpointing": "full"}))
    assert answer["unsupported"][0]["where"] == "step.activation_checkpointing"
    assert answer["unsupported"][0]["allowed"] == "none"


@pytest.mark.parametrize(
    ("method", "key"),
    [
        ({"kind": "hra", "quantization": "nf4"}, "method.quantization"),
        ({"kind": "qlora", "quantization": "int8"}, "method.quantization"),
        ({"kind": "lora", "objective": "dpo"}, "method.objective"),
    ],
)
def test_refused_by_its_key(method: dict[str, Any], key: str, ask: Any) -> None:
    assert [fault["where"] for fault in ask(worksheet(method=method))["unsupported"]] == [key]


def test_what_peft_refuses_is_told_in_its_words(ask: Any) -> None:
    answer = ask(worksheet(method={"kind": "c3a", "rank": 100}))
    assert answer["unsupported"][0]["where"] == "method.kind"
    assert "block size should be a factor" in answer["unsupported"][0]["found"]


def test_modules_trained_in_full_have_weights_of_their_own(traced: Any) -> None:
    plain = traced(worksheet(method={"kind": "lora"})).trainable_parameters
    beside = traced(worksheet(method={"kind": "lora", "train_modules": ["embed_tokens"]})).trainable_parameters
    assert beside - plain == SMALL["vocab_size"] * SMALL["hidden_size"]  # type: ignore[operator]


def test_qlora_keeps_what_is_not_packed_in_float32_where_stated(traced: Any) -> None:
    """The embedding (tied to the head) and five norms go from two bytes an element to four: peft, prepare_model_for_kbit_training."""
    upcast, plain = (_weight_bytes(traced(worksheet(method={"kind": "qlora", "upcast_unquantized": value}))) for value in (True, False))
    assert upcast - plain == 2 * (500 * 256 + 5 * 256)


def _weight_bytes(found: Any) -> int:
    return int(next(instant for instant in found.instants if instant.at == "optimizer_step").holdings.weights)


@pytest.mark.parametrize("every", ["full", "selective", 2])
def test_recomputation_frees_activations(every: Any, traced: Any) -> None:
    long = {"sequence_tokens": 256, "micro_batch": 4}
    model = {"config": {**SMALL, "num_hidden_layers": 4, "vocab_size": 64}}
    plain = traced(worksheet(model=model, batch=long))
    less = traced(worksheet(model=model, batch=long, step={"activation_checkpointing": every}))
    assert less.allocated_peak_bytes < plain.allocated_peak_bytes


def test_settings_of_every_kind_pass_the_worksheet() -> None:
    for kind in (*OWN, *REFUSED):
        assert settings_of(worksheet_from_mapping(worksheet(method={"kind": kind}))).method.kind == kind


EXPERTS = {
    "model_type": "mixtral", "hidden_size": 256, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "num_local_experts": 4, "vocab_size": 500,
}  # fmt: skip


def test_peft_s_default_targets_hold_also_where_it_does_not_look_for_them(traced: Any) -> None:
    """peft 0.21 asks for target modules of a Mixtral, though its table has them: queries and values."""
    found = traced(worksheet(model={"config": EXPERTS}, method={"kind": "lora", "rank": 8}))
    assert found.trainable_parameters == 2 * 2 * 8 * (256 + 256)


def test_experts_that_another_version_would_pack_are_refused(ask: Any, traced: Any) -> None:
    sections: dict[str, Any] = {"model": {"config": EXPERTS}, "method": {"kind": "qlora", "upcast_unquantized": False}}
    answer = ask(worksheet(**sections, step={"framework_version": "4.48.1"}))
    assert answer["unsupported"][0]["where"] == "step.framework_version"
    experts = 2 * 4 * 3 * 256 * 128
    assert _weight_bytes(traced(worksheet(**sections))) > 2 * experts  # this version leaves them in 16 bits


@pytest.mark.parametrize(
    ("framework", "version", "told"),
    [("transformers", "4.48.1", True), ("fms_acceleration", "4.45.2", True), ("transformers", "5", False), ("torch", "2.6", False)],
)
def test_another_version_of_the_classes_is_told(framework: str, version: str, told: bool, traced: Any) -> None:
    found = traced(worksheet(step={"framework": framework, "framework_version": version}))
    assert any(version in text for code, text in found.notes if code == "F123") is told


def test_packed_weights_stay_packed_where_they_pass_for_16_bits(traced: Any) -> None:
    """FSDP stores them so; only a shard of the embedding (tied) grows: those of norms take one place of 512 bytes in either dtype."""
    sections: dict[str, Any] = {"layout": {"strategy": "fsdp"}, "machine": {"gpu": "L40S", "gpus": 2}}
    methods = ({"kind": "qlora", "upcast_unquantized": value} for value in (True, False))
    upcast, plain = (_weight_bytes(traced(worksheet(method=method, **sections))) for method in methods)
    assert upcast - plain == 2 * 500 * 256 // 2
