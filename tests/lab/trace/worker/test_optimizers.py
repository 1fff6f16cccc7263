"""States and temporaries of every optimizer, by hand from its library's source, on two matrices and a vector."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.lab.trace.front.limits import OPTIMIZERS
from fullstep.lab.trace.worker import optimizers
from fullstep.lab.trace.worker.optimizers import build_optimizer, host_states, states_of

pytestmark = pytest.mark.real_classes
EMBEDDING, INNER, VECTOR = 1024 * 512, 512 * 512, 512
ALL = EMBEDDING + INNER + VECTOR
CODES = 2 * 256 * 4
"""two tables of 256 values"""
CONFIG = {
    "model_type": "llama", "hidden_size": 512, "vocab_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
    "intermediate_size": 512,
}  # fmt: skip


class Model(nn.Module):
    """An embedding, a matrix, a vector; all in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1024, 512, dtype=torch.bfloat16)
        self.inner = nn.Linear(512, 512, dtype=torch.bfloat16)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.inner(self.embedding(ids)).sum()


def settings(framework: str = "torch", **optimizer: Any) -> Settings:
    return settings_of(worksheet_from_mapping({"model": {"config": CONFIG}, "step": {"framework": framework}, "optimizer": optimizer}))


def steps(recorder: Any, worst: Any, **optimizer: Any) -> tuple[int, int]:
    """(bytes of states on the GPU, most that the second step needs besides)."""
    model = Model()
    made = build_optimizer(settings(**optimizer), model, list(model.parameters()), recorder)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    recorder.keep_on_host(host_states(made))
    kept = {value.untyped_storage()._cdata: value for _, _, value in states_of(made) if value.untyped_storage()._cdata not in recorder.host}
    return sum(value.numel() * value.element_size() for value in kept.values()), worst(made.step)


@pytest.mark.parametrize(
    ("optimizer", "states", "temporaries"),
    [
        ({"name": "adamw"}, 4 * ALL, 2 * ALL),  # square roots of all second moments
        ({"name": "adamw", "implementation": "fused"}, 4 * ALL + 3 * 4, 0),  # step counters are read by the kernel
        ({"name": "adamw", "implementation": "single"}, 4 * ALL, 2 * 2 * EMBEDDING),
        ({"name": "sgd"}, 0, 0),
        ({"name": "sgd_momentum"}, 2 * ALL, 0),
        ({"name": "lion"}, 2 * ALL, 2 * 2 * EMBEDDING),  # the momentum's copy and its sum with the gradient
        ({"name": "adamw_8bit"}, 2 * (ALL - VECTOR) + 2 * 4 * (ALL - VECTOR) // 256 + 8 * VECTOR + CODES, 0),
        ({"name": "lion_8bit"}, (ALL - VECTOR) + 4 * (ALL - VECTOR) // 256 + 4 * VECTOR + CODES // 2, 0),
        # the Trainer keeps float32 states for the embedding
        ({"name": "adamw_8bit", "framework": "transformers"}, 2 * INNER + 2 * 4 * INNER // 256 + 8 * (EMBEDDING + VECTOR) + CODES, 0),
        ({"name": "paged_adamw"}, 8 * VECTOR, 0),  # float32 states of both matrices are paged
        ({"name": "paged_adamw_8bit"}, 2 * 4 * (ALL - VECTOR) // 256 + 8 * VECTOR + CODES, 0),  # scales are not
        # two states of half a byte, a scale per 128, and a table of 16 values for each of the four; vectors as they are
        ({"name": "adamw_4bit"}, (ALL - VECTOR) + 2 * 4 * (ALL - VECTOR) // 128 + 4 * 16 * 4 + 4 * VECTOR, 0),
    ],
)  # fmt: skip
def test_states_and_temporaries(recorder: Any, worst: Any, optimizer: dict[str, Any], states: int, temporaries: int) -> None:
    found, needed = steps(recorder, worst, **optimizer)
    assert found == states
    assert temporaries <= needed <= temporaries + 512


def test_adafactor_has_rows_and_columns_and_four_float32_copies_of_the_largest(recorder: Any, worst: Any) -> None:
    states, needed = steps(recorder, worst, name="adafactor")
    assert states == 4 * (1024 + 512 + 512 + 512 + VECTOR) + 4 * 3  # and the size of each parameter's update
    assert 16 * EMBEDDING <= needed < 16.1 * EMBEDDING  # gradient, weight, update, and one more in the making


def test_muon_takes_matrices_inside_the_model_alone(recorder: Any, worst: Any) -> None:
    states, needed = steps(recorder, worst, name="muon", implementation="foreach")
    assert states == 2 * INNER + 4 * (EMBEDDING + VECTOR)
    assert needed >= 2 * (EMBEDDING + VECTOR)  # the step of AdamW over the rest


def test_paged_states_are_in_host_memory(recorder: Any) -> None:
    model = Model()
    made = build_optimizer(settings(name="paged_adamw"), model, list(model.parameters()), recorder)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    assert sum(value.numel() * value.element_size() for value in host_states(made)) == 8 * (EMBEDDING + INNER)


def test_in_backward_no_gradient_outlives_its_parameter_s_step(recorder: Any, worst: Any) -> None:
    model = Model()
    made = build_optimizer(settings(name="sgd", in_backward=True), model, list(model.parameters()), recorder)
    ids = torch.zeros(1, 8, dtype=torch.long)
    needed = worst(lambda: model(ids).backward())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert 2 * EMBEDDING <= needed < 2 * EMBEDDING + 64 * 1024  # one gradient at a time; the largest
    assert made.state == {}


def test_in_backward_with_states(recorder: Any) -> None:
    model = Model()
    made = build_optimizer(settings(name="adamw", in_backward=True), model, list(model.parameters()), recorder)
    model(torch.zeros(1, 8, dtype=torch.long)).backward()
    assert sum(value.numel() * 2 for _, name, value in states_of(made) if name != "step") == 4 * ALL
    assert {record.holding for record in recorder.stream.tensors if record.operation.startswith("aten.embedding_dense")} == {"gradients"}


def test_what_is_built_is_what_the_front_lets_through() -> None:
    assert set(optimizers._KNOWN) == set(OPTIMIZERS)
