"""The line rate that an answer asks for, put into the worksheet, gives the share that was allowed."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.api import estimate
from fullstep.job import worksheet_from_mapping

SHARDED = {"strategy": "fsdp"}
PIPELINE = {"strategy": "zero1", "pipeline": 4}


@pytest.mark.parametrize(
    ("layout", "framework", "rdma"),
    [(SHARDED, "torch", True), (SHARDED, "torch", False), (PIPELINE, "megatron", True), (PIPELINE, "megatron", False)],
)
def test_required_rate_gives_the_share(layout: dict[str, Any], framework: str, rdma: bool) -> None:
    """A tenth of the step, the bubble of a pipeline included."""
    machine: dict[str, Any] = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "rdma": rdma, "network_gbit_s": 100}
    mapping = {
        "model": {"name": "meta-llama/Llama-3.1-8B"}, "batch": {"sequence_tokens": 4096, "accumulation": 4}, "layout": layout,
        "step": {"framework": framework}, "machine": machine,
    }  # fmt: skip

    def answered() -> Any:
        found = estimate(worksheet_from_mapping(mapping, "required")).timing
        assert found is not None
        return found

    needed = answered().traffic.required_gbit_s_per_node
    machine["network_gbit_s"] = needed.likely
    assert answered().step.exposed_communication_fraction.likely == pytest.approx(0.10, abs=0.003)
    machine["network_gbit_s"] = needed.likely / 2
    assert answered().step.exposed_communication_fraction.likely > 0.11
