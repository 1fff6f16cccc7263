"""One job and one answer made by hand, so that the exact text does not hang on the formulas."""

from __future__ import annotations

import pytest

from fullstep.evidence import Assumption
from fullstep.job import Job, Worksheet, complete, worksheet_from_mapping
from fullstep.ledger import Answer, Caution, Holdings, HostMemory, Instant, Memory, OtherPeaks
from fullstep.plan.verdict import judge
from fullstep.quantities import GIB, Bounds

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131072,
}  # fmt: skip


def gib(low: float, likely: float, high: float) -> Bounds:
    return Bounds(low * GIB, likely * GIB, high * GIB)


@pytest.fixture
def worksheet() -> Worksheet:
    return worksheet_from_mapping(
        {
            "model": {"name": "meta-llama/Llama-3.1-8B", "config": CONFIG},
            "precision": {"weights": "float32"},
            "batch": {"sequence_tokens": 4096, "accumulation": 4},
            "machine": {"gpu": "H100-SXM", "gpus": 8, "gpu_memory_gib": 80, "host_memory_gib": 512},
        }
    )


@pytest.fixture
def job(worksheet: Worksheet) -> Job:
    return complete(worksheet)


@pytest.fixture
def answer() -> Answer:
    """25 GiB at the second forward; the high bound is 60 of 79 GiB usable."""
    instants = (
        Instant("forward", Holdings(4 * GIB, 0, 7 * GIB, 4 * GIB, 0, GIB)),
        Instant("second_forward", Holdings(4 * GIB, 4 * GIB, 7 * GIB, 4 * GIB, 5 * GIB, GIB), "block 31"),
        Instant("optimizer_step", Holdings(4 * GIB, 4 * GIB, 7 * GIB, 0, 0, 0, 4 * GIB)),
    )
    needed = gib(26, 27, 60)
    judgement = judge(needed, OtherPeaks(load=30 * GIB), 79 * GIB, 0.05)
    return Answer(
        parameters=8030261248,
        trainable_parameters=8030261248,
        memory=Memory(
            evidence="estimated", allocated_peak_bytes=gib(24.5, 25, 26), reserved_peak_bytes=gib(27, 28, 31.5),
            device_peak_bytes=gib(29, 30, 34), needed_bytes=needed, peak_at="second_forward", instants=instants,
            other_peaks=OtherPeaks(load=30 * GIB), usable_bytes=79 * GIB, verdict=judgement.verdict, reason=judgement.reason,
        ),
        host=HostMemory(evidence="estimated", memory_peak_bytes=30.2 * GIB, at="load", verdict="fits"),
        assumptions=(
            Assumption("step.attention", "sdpa", "default of transformers 5; see its source"),
            Assumption("step.compile", False, "off"),
            Assumption("data.tokens", None, "no data set"),
        ),
        warnings=(Caution("F011", "rows are longer than the model's positions"),),
    )  # fmt: skip
