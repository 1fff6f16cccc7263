"""Figures about the allocator: each has evidence and source; trust follows from what the worksheet states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fullstep.physics.memory.allocator as module
from fullstep.job import Job
from fullstep.physics.memory.allocator import allocator_facts, layout_kind, trust_in

Make = Callable[..., Job]
DATA = json.loads((Path(module.__file__).parent / "data" / "allocator.json").read_text(encoding="utf-8"))


def figures(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict) and "value" in node:
        yield node
    elif isinstance(node, dict):
        for child in node.values():
            yield from figures(child)


def test_every_figure_has_evidence_and_source() -> None:
    found = list(figures(DATA))
    assert len(found) >= 10
    for figure in found:
        assert figure["evidence"] in ("stated", "published", "assumed", "derived", "traced", "measured"), figure
        assert len(figure["source"]) > 20, figure


def test_figures_are_shares() -> None:
    facts = allocator_facts()
    for share in (*facts.block_fragmentation.values(), facts.expandable_fragmentation, facts.full_card_share, facts.shared_with_loss):
        assert 0 <= share < 1.5
    for spread in (*facts.reserved_spread.values(), *facts.trust.values()):
        assert 0 <= spread.below < 0.5 and 0 <= spread.above < 0.5
    assert list(facts.unavoidable_fragmentation) == sorted(facts.unavoidable_fragmentation)


def test_layouts_have_their_figures(eight_billion: Make) -> None:
    assert layout_kind(eight_billion()) == "whole"
    assert layout_kind(eight_billion(layout__strategy="ddp", machine__gpus=2)) == "whole"
    assert layout_kind(eight_billion(layout__strategy="hsdp", machine__gpus=2)) == "sharded"


def test_a_stated_version_is_trusted_more(eight_billion: Make) -> None:
    facts = allocator_facts()
    stated = trust_in(eight_billion(step__framework_version="5.0.0"), facts)
    usual = trust_in(eight_billion(), facts)
    other = trust_in(eight_billion(step__framework="litgpt", step__framework_version="0.5"), facts)
    for less in (usual, other):
        assert stated.above < less.above
        assert stated.below <= less.below
