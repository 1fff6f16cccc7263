"""Who asks for CUDA's autocast on processors."""

from __future__ import annotations

import pytest
import torch

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.program.casting import answered_as_on_gpus

pytestmark = pytest.mark.real_classes


@pytest.mark.parametrize("casts", [True, False])
def test_it_is_on_where_the_worksheet_casts_and_off_again_afterwards(casts: bool) -> None:
    sheet = {"model": {"config": {"model_type": "llama"}}, "precision": {"compute": "bfloat16", "autocast": casts}}
    with answered_as_on_gpus(settings_of(worksheet_from_mapping(sheet))):
        assert torch.is_autocast_enabled() == casts
    assert not torch.is_autocast_enabled()
