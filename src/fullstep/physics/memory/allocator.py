"""Figures about the caching allocator and about how far the allocated estimate is trusted, from ``data/allocator.json``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fullstep.job import Job
from fullstep.physics.memory.megatron import is_megatron
from fullstep.physics.memory.rank import tensor_plan
from fullstep.quantities import Bounds

CHECKED_FRAMEWORKS = ("transformers", "fms_acceleration")
"""whose published runs the estimate was checked against (see the accuracy table)"""


class Spread(NamedTuple):
    """Shares by which a peak may lie below and above its likely value."""

    below: float
    above: float


class AllocatorFacts(NamedTuple):
    """Shares (1 = 100 %); each with its evidence in the data file. Those by layout: "whole" or "sharded" (FSDP)."""

    block_fragmentation: dict[str, float]
    """of a block's working memory, reserved besides and not used"""
    expandable_fragmentation: float
    full_card_share: float
    """where cached blocks would fill the card: how much of the room above allocated is reserved when the last request fails"""
    shared_with_loss: float
    """of a block's working memory, what finds places among the blocks that the loss has left"""
    reserved_spread: dict[str, Spread]
    unavoidable_fragmentation: Bounds
    trust: dict[str, Spread]
    """of allocated: "checked", "version_unknown", "unchecked", "divided" """


def layout_kind(job: Job) -> str:
    """Under which name the figures of a layout stand."""
    return "sharded" if job.layout.is_fsdp else "whole"


def is_rough(job: Job) -> bool:
    """Degrees whose formulas were checked neither by traces nor against published allocated peaks.

    Checked are tensor ranks by the plans of transformers (traces), and Megatron's tensor, pipeline and context ranks (published).
    """
    layout = job.layout
    if layout.expert > 1:
        return True
    if is_megatron(job):
        return False
    return layout.pipeline * layout.context > 1 or (layout.tensor > 1 and tensor_plan(job) != "transformers")


def trust_in(job: Job, facts: AllocatorFacts) -> Spread:
    """How far the allocated peak is trusted: by framework, by whether its version is stated, and by what is divided (``is_rough``)."""
    if is_rough(job):
        return facts.trust["divided"]
    if job.step.framework not in CHECKED_FRAMEWORKS:
        return facts.trust["unchecked"]
    stated = "framework_version" in job.worksheet.get("step", {})
    return facts.trust["checked" if stated else "version_unknown"]


@cache
def allocator_facts() -> AllocatorFacts:
    """Read once."""
    data = json.loads((Path(__file__).parent / "data" / "allocator.json").read_text(encoding="utf-8"))
    return AllocatorFacts(
        block_fragmentation={name: row["value"] for name, row in data["block_fragmentation"].items()},
        expandable_fragmentation=data["expandable_fragmentation"]["value"],
        full_card_share=data["full_card_share"]["value"],
        shared_with_loss=data["shared_with_loss"]["value"],
        reserved_spread={name: Spread(*row["value"]) for name, row in data["reserved_spread"].items()},
        unavoidable_fragmentation=Bounds(*data["unavoidable_fragmentation"]["value"]),
        trust={name: Spread(*row["value"]) for name, row in data["trust"].items()},
    )
