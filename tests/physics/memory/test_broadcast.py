"""Pieces in which DDP sends the first rank's values, beside torch's own rule over the tensors of real classes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM

from fullstep.job import complete, worksheet_from_mapping
from fullstep.models import model_config
from fullstep.physics.memory.broadcast import PIECE_BYTES, broadcast_bytes


@pytest.mark.real_classes
@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-4B"])
def test_pieces_that_ddp_sends_are_those_that_torch_makes(name: str) -> None:
    """Of the real class: torch's own rule puts its tensors together, and a piece of one tensor is a view."""
    sheet = {"model": {"name": name}, "method": {"kind": "lora"}, "machine": {"gpus": 4}, "layout": {"strategy": "ddp"}}
    config, _ = model_config(sheet["model"])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.bfloat16)
    tensors = list(model.parameters())
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, [PIECE_BYTES])
    held = [sum(2 * tensors[index].numel() for index in bucket) if len(bucket) > 1 else 0 for bucket in buckets]
    expected = max(one + other for one, other in pairwise([0, *held]))
    assert broadcast_bytes(complete(worksheet_from_mapping(sheet))) == pytest.approx(expected, rel=0.01)
