"""What ranks of nodes that do not match say, before they wait for each other."""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import sha256

import pytest
import torch.distributed as dist

from fullstep.errors import InputError
from fullstep.lab.ranks.joining import join_group, require_the_same


@pytest.mark.parametrize("here", [8, 4])
def test_nodes_with_different_numbers_of_ranks(here: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOCAL_WORLD_SIZE": here, "GROUP_WORLD_SIZE": 2, "WORLD_SIZE": 12}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(InputError, match=f"nodes: {here} ranks on this one, 12 on all 2; allowed: the same number on each"):
        join_group("cpu")


@pytest.mark.parametrize(("nodes", "others", "refuses"), [(1, "another", False), (2, "the same", False), (2, "another", True)])
def test_nodes_that_were_told_other_things(nodes: int, others: str, refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(found: list[str], own: str) -> None:
        found[:] = [own, sha256(others.encode()).hexdigest()]

    monkeypatch.setenv("GROUP_WORLD_SIZE", str(nodes))
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_gather_object", gather)
    with pytest.raises(InputError, match="nodes: seeds differ between the nodes") if refuses else nullcontext():
        require_the_same("seeds", "the same")
