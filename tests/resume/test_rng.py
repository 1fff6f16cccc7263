"""Random numbers of one rank: restored, or streams that nobody had before."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from fullstep.resume.rng import new_streams, rng_state, set_rng_state

pytestmark = pytest.mark.real_classes


def _draws() -> tuple[Any, ...]:
    return torch.rand(3).tolist(), random.random(), random.gauss(0, 1), np.random.rand(3).tolist(), np.random.standard_normal()


def test_all_libraries_go_on_where_they_were() -> None:
    random.gauss(0, 1), np.random.standard_normal()  # each of these keeps a second number for later
    state = rng_state()
    drawn = _draws()
    torch.manual_seed(9), random.seed(9), np.random.seed(9)
    assert _draws() != drawn
    set_rng_state(state)
    assert _draws() == drawn


def test_what_is_not_in_a_state_stays() -> None:
    state = {name: value for name, value in rng_state().items() if name != "numpy"}
    np.random.seed(9)
    drawn = np.random.rand(3).tolist()
    np.random.seed(9)
    set_rng_state(state)
    assert np.random.rand(3).tolist() == drawn


def test_new_streams_are_the_same_again_and_no_ones_else() -> None:
    seen = {}
    for step, rank, ranks in ((1, 0, 2), (1, 1, 2), (2, 0, 2), (1, 0, 4), (11, 0, 2), (1, 10, 2)):
        new_streams(step, rank, ranks)
        seen[step, rank, ranks] = repr(_draws())
        new_streams(step, rank, ranks)
        assert repr(_draws()) == seen[step, rank, ranks]
    assert len(set(seen.values())) == len(seen)
