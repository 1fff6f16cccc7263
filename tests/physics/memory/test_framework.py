"""Facts of releases: which version does what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.job.habits import prefetches_units
from fullstep.physics.memory.framework import (
    asks_for_grouped_keys,
    is_reentrant,
    output_bytes_per_logit,
    repeats_keys,
    transformers_version,
)

Make = Callable[..., Job]


def test_another_frameworks_version_says_nothing_of_transformers(eight_billion: Make) -> None:
    assert transformers_version(eight_billion(step__framework_version="4.45.2")) == (4, 45, 2)
    assert transformers_version(eight_billion(step__framework="torchtune", step__framework_version="0.5")) > (5,)


@pytest.mark.parametrize(("framework", "version", "reentrant"), [("transformers", "4.57.0", True), ("transformers", "5.0.0", False)])
def test_checkpointing_was_reentrant_until_5(eight_billion: Make, framework: str, version: str, reentrant: bool) -> None:
    assert is_reentrant(eight_billion(step__framework=framework, step__framework_version=version)) is reentrant
    assert not is_reentrant(eight_billion(step__framework="torchtune"))


@pytest.mark.parametrize(
    ("version", "attention", "kernel", "repeats"),
    [
        ("4.52.0", "sdpa", "flash", True),  # repeat_kv before sdpa
        ("4.53.0", "sdpa", "flash", False),  # enable_gqa instead
        ("5.0.0", "sdpa", "efficient", True),  # that kernel takes no grouped keys
        ("5.0.0", "eager", "eager", True),
        ("4.45.0", "flash", "flash", False),  # llama's class left it to flash attention
    ],
)
def test_keys_are_copied_to_all_heads(eight_billion: Make, version: str, attention: str, kernel: str, repeats: bool) -> None:
    job = eight_billion(step__framework_version=version, step__attention=attention)
    assert repeats_keys(job, kernel) is repeats
    assert asks_for_grouped_keys(job) is (version >= "4.53")


def test_mistrals_flash_class_copied_keys_until_4_48(eight_billion: Make) -> None:
    def repeats(version: str) -> bool:
        job = eight_billion(model__name="mistralai/Mistral-7B-v0.1", step__framework_version=version, step__attention="flash")
        return repeats_keys(job, "flash")

    assert (repeats("4.47.1"), repeats("4.48.0")) == (True, False)


def test_native_frameworks_copy_keys_under_sdpa(eight_billion: Make) -> None:
    for framework in ("torchtune", "torchtitan", "litgpt"):
        assert repeats_keys(eight_billion(step__framework=framework), "flash")


def test_units_are_gathered_ahead_but_by_accelerates_fsdp1(eight_billion: Make) -> None:
    fsdp1 = {"layout__strategy": "fsdp", "layout__implementation": "fsdp1", "machine__gpus": 8}
    assert prefetches_units(eight_billion(layout__strategy="fsdp", machine__gpus=8))
    assert not prefetches_units(eight_billion(**fsdp1))
    assert prefetches_units(eight_billion(**fsdp1, step__framework="torch"))
    assert prefetches_units(eight_billion(**fsdp1, layout__prefetch_units=1))
    assert not prefetches_units(eight_billion(layout__strategy="fsdp", machine__gpus=8, layout__prefetch_units=0))


def test_lightning_converts_outputs_to_float32(eight_billion: Make) -> None:
    assert output_bytes_per_logit(eight_billion(step__framework="litgpt"), 2) == 4
    assert output_bytes_per_logit(eight_billion(), 2) == 2
