"""Figures about the caching allocator and about how far the allocated estimate is trusted, from ``data/allocator.json``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fullstep.job import Job
from fullstep.physics.memory.sharding import FSDP
from fullstep.quantities import Bounds


class Trust(NamedTuple):
    """Shares by which the allocated peak may lie below and above the estimate."""

    low: float
    high: float


class AllocatorFacts(NamedTuple):
    """Shares (1 = 100 %); each with its evidence in the data file."""

    block_fragmentation: dict[str, float]
    expandable_fragmentation: float
    full_card_share: float
    """where cached blocks would fill the card: how much of the room above allocated is reserved when the last request fails"""
    shared_with_loss: float
    """share of a block's working memory that finds places among the blocks that the loss has left"""
    reserved_below: float
    reserved_above: float
    unavoidable_fragmentation: Bounds
    trust_by_framework: dict[str, Trust]

    def fragmentation(self, job: Job) -> float:
        """Share of a block's working memory that is reserved besides and not used."""
        return self.block_fragmentation["sharded" if job.layout.strategy in FSDP else "whole"]

    def trust(self, job: Job) -> Trust:
        """How far the allocated peak is trusted for this job's framework."""
        return self.trust_by_framework.get(job.step.framework) or self.trust_by_framework["other"]


@cache
def allocator_facts() -> AllocatorFacts:
    """Read once."""
    data = json.loads((Path(__file__).parent / "data" / "allocator.json").read_text(encoding="utf-8"))
    return AllocatorFacts(
        block_fragmentation={name: row["value"] for name, row in data["block_fragmentation"].items()},
        expandable_fragmentation=data["expandable_fragmentation"]["value"],
        full_card_share=data["full_card_share"]["value"],
        shared_with_loss=data["shared_with_loss"]["value"],
        reserved_below=data["reserved_below"]["value"],
        reserved_above=data["reserved_above"]["value"],
        unavoidable_fragmentation=Bounds(*data["unavoidable_fragmentation"]["value"]),
        trust_by_framework={name: Trust(*row["value"]) for name, row in data["trust"].items()},
    )
