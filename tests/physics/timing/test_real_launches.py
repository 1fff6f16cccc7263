"""Kernels that a block launches, against the operations that torch really runs for it.

Needs the extra ``lab``; run by ``pytest -m real_classes``. The CPU splits dropout, one kernel of CUDA, which the count allows for.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fullstep.hardware import find_card
from fullstep.job import complete, worksheet_from_mapping
from fullstep.physics.timing.block_time import block_time
from fullstep.physics.timing.rates import card_rates
from fullstep.physics.timing.workload import workload_of

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]

CONFIG = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
VIEWS = {
    "view", "transpose", "t", "slice", "unsqueeze", "expand", "permute", "detach", "alias", "_unsafe_view", "squeeze", "split", "select",
    "empty", "empty_like", "lift_fresh",
}  # fmt: skip
PARTS_OF_DROPOUT = ("bernoulli_", "div_")
"""run before its product with the input, which CUDA does in one kernel"""


def run_operations(layers: int, *, adapters: bool) -> tuple[Counter[str], Counter[str]]:
    """Operations forward and backward of a tiny llama under autocast, without views."""
    import torch  # noqa: PLC0415
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    found: Counter[str] = Counter()

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            found[operation.overloadpacket.__name__] += 1
            return operation(*arguments, **(keywords or {}))

    model: Any = LlamaForCausalLM(LlamaConfig(**CONFIG, num_hidden_layers=layers, attn_implementation="sdpa")).to(torch.bfloat16)
    if adapters:
        from peft import LoraConfig, get_peft_model  # noqa: PLC0415

        model = get_peft_model(model, LoraConfig(r=8, lora_dropout=0.05, target_modules=LINEARS))
    model.train()
    tokens = torch.randint(0, 512, (1, 64))
    with Counting():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        forward = Counter(found)
        loss.backward()
    backward = found - forward
    for counted in (forward, backward):
        for name in (*VIEWS, *PARTS_OF_DROPOUT):
            del counted[name]
    return forward, backward


@pytest.mark.parametrize("adapters", [False, True])
def test_kernels_of_a_llama_block(adapters: bool) -> None:
    two, four = (run_operations(layers, adapters=adapters) for layers in (2, 4))
    forward, backward = ((four[phase].total() - two[phase].total()) / 2 for phase in (0, 1))
    method = {"kind": "lora", "targets": "all-linear", "dropout": 0.05} if adapters else {"kind": "full"}
    config = {"model_type": "llama", **CONFIG, "num_hidden_layers": 4}
    job = complete(worksheet_from_mapping({"model": {"config": config}, "method": method, "precision": {"autocast": True}}, "tiny"))
    rates = card_rates(find_card("A100-SXM4-80GB"))
    assert rates is not None
    block = job.shape.blocks[0]
    launches = block_time(rates, block, workload_of(job, block), hidden=256, first=False).once.launches
    assert launches["forward"] == pytest.approx(forward, rel=0.06)
    assert launches["backward"] == pytest.approx(backward, rel=0.12)
