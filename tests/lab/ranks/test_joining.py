"""What ranks of nodes that do not match say, before they wait for each other."""

from __future__ import annotations

import pytest

from fullstep.errors import InputError
from fullstep.lab.ranks.joining import join_group


@pytest.mark.parametrize("here", [8, 4])
def test_nodes_with_different_numbers_of_ranks(here: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOCAL_WORLD_SIZE": here, "GROUP_WORLD_SIZE": 2, "WORLD_SIZE": 12}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(InputError, match=f"nodes: {here} ranks on this one, 12 on all 2; allowed: the same number on each"):
        join_group("cpu")
