"""Machines, layouts and changes in words, and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Worksheet, complete
from fullstep.plan.layouts import LAYOUTS, layout_name, layout_words, machine_words
from fullstep.plan.missing import missing_data
from fullstep.plan.savers import change_words, free_savers, level_of, level_words

Sheet = Callable[..., Worksheet]


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({"gpus": 1}, "one H100-SXM"),
        ({"gpus": 8}, "8 x H100-SXM"),
        ({"gpus": 8, "nodes": 2}, "2 nodes of 8 x H100-SXM"),
        ({"gpu": None, "gpus": 2, "gpu_memory_gib": 48}, "2 GPUs of 48.0 GiB"),
        ({"gpu": None, "gpus": 1}, "one GPU of a card not named"),
    ],
)
def test_machines(sheet: Sheet, machine: dict[str, Any], words: str) -> None:
    assert machine_words(complete(sheet(machine=machine))) == words


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        ({"strategy": "ddp"}, "DDP"),
        ({"strategy": "zero3"}, "ZeRO-3"),
        ({"strategy": "fsdp"}, "FSDP2"),
        ({"strategy": "fsdp", "implementation": "fsdp1"}, "FSDP1"),
        ({"strategy": "hsdp"}, "HSDP (FSDP2)"),
        ({"strategy": "layer_split"}, "device_map"),
    ],
)
def test_layouts(sheet: Sheet, layout: dict[str, Any], name: str) -> None:
    job = complete(sheet(layout=layout))
    assert layout_name(job.layout) == name
    assert layout_words(job) == f"{LAYOUTS[job.layout.strategy].words} ({name})"


def test_layouts_in_order_of_what_they_send() -> None:
    assert sorted(LAYOUTS, key=lambda name: LAYOUTS[name].traffic) == list(LAYOUTS)
    assert [name for name in LAYOUTS if not LAYOUTS[name].sharded][:2] == ["single", "ddp"]


@pytest.mark.parametrize(
    ("step", "layout", "cost", "words"),
    [
        ({}, {}, (0, 0), ""),
        ({"activation_checkpointing": "selective"}, {}, (0, 1), "selective recomputation"),
        ({"activation_checkpointing": 2}, {}, (0, 2), "every 2. block recomputed"),
        ({"activation_offload": True}, {}, (1, 0), "activations offloaded"),
        (
            {"activation_checkpointing": "full"},
            {"offload_optimizer": True, "offload_parameters": True},
            (3, 2),
            "full recomputation, optimizer and parameters offloaded",
        ),
    ],
)
def test_levels(sheet: Sheet, step: dict[str, Any], layout: dict[str, Any], cost: tuple[int, int], words: str) -> None:
    job = complete(sheet(step=step, layout=layout))
    assert level_of(job) == cost
    assert level_words(job) == words


def test_changes() -> None:
    changes = {"layout.strategy": "ddp", "layout.shards": None, "step.activation_offload": True, "batch.micro_batch": 4}
    first = "layout.strategy = ddp, without layout.shards, "
    assert change_words(changes) == first + "activations offloaded to host memory, batch.micro_batch = 4"


def test_what_is_stated_is_not_missing(sheet: Sheet) -> None:
    nothing = {missing.key for missing in missing_data(complete(sheet()))}
    assert nothing == {"machine.host_memory_gib", "measured.allocated_peak_gib", "data.tokens"}
    all_there = sheet(machine={"host_memory_gib": 512}, data={"tokens": 10**9}, measured={"allocated_peak_gib": 40})
    assert missing_data(complete(all_there)) == []


def test_a_network_is_missing_between_nodes_only(sheet: Sheet) -> None:
    assert "machine.network_gbit_s" in {missing.key for missing in missing_data(complete(sheet(machine={"nodes": 2})))}


def test_one_gpu_shares_with_nobody(sheet: Sheet) -> None:
    alone = complete(sheet(machine={"gpus": 1}, layout={"strategy": "zero3", "offload_optimizer": True}))
    assert layout_words(alone) == "ZeRO-3"


@pytest.mark.parametrize(
    ("config", "saves"),
    [({"model_type": "gemma2"}, True), ({"model_type": "gpt_oss"}, False), ({"model_type": "bloom"}, False)],
)
def test_flash_attention_with_soft_capping_but_not_with_sinks_or_alibi(sheet: Sheet, config: dict[str, Any], saves: bool) -> None:
    """FlashAttention 2.6 has a soft cap."""
    job = complete(sheet(model={"name": None, "config": config}, step={"attention": "eager"}))
    assert (free_savers(job).get("step.attention") == "flash") is saves
