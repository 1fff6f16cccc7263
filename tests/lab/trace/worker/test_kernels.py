"""Losses of libraries and offloaded activations, by hand from the shapes in their sources."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fullstep.errors import UnsupportedError
from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.trace.worker.head import impose_loss
from fullstep.lab.trace.worker.losses import FusedLinearLoss, InPlaceLoss, rows_of_a_chunk
from fullstep.lab.trace.worker.offload import activations_on_host, host_peak_bytes

pytestmark = pytest.mark.real_classes
TOKENS, WIDTH, WORDS = 256, 256, 8192
ROWS = 8
"""of a chunk: 8192 / 256 = 32 parts, 256 / 32 rows each"""
SMALL = {
    "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": WORDS, "tie_word_embeddings": False,
}  # fmt: skip
SLACK = 8 * 1024
"""labels, masks, a number per row, and their rounding to 512 bytes"""


def sheet(**sections: dict[str, Any]) -> dict[str, Any]:
    return {"model": {"config": SMALL}, "batch": {"sequence_tokens": TOKENS}, **sections}


def test_chunks_of_liger_have_about_as_many_elements_as_the_hidden_states() -> None:
    assert rows_of_a_chunk(TOKENS, WIDTH, WORDS) == ROWS
    assert rows_of_a_chunk(4096, 4096, 128256) == 128  # ceil(128256 / 4096) = 32 parts of 128 rows
    assert rows_of_a_chunk(3000, 2048, 151936) == 64  # 75 parts of 40 rows, up to a power of two
    assert rows_of_a_chunk(10, 4096, 1000) == 10  # one part, no more than there are


def hidden_and_matrix(dtype: torch.dtype, *, trains: bool) -> tuple[torch.Tensor, nn.Parameter, torch.Tensor]:
    hidden = torch.zeros(TOKENS, WIDTH, dtype=dtype, requires_grad=True)
    return hidden, nn.Parameter(torch.zeros(WORDS, WIDTH, dtype=dtype), requires_grad=trains), torch.zeros(TOKENS, dtype=torch.long)


@pytest.mark.parametrize("trains", [True, False])
def test_fused_makes_gradients_in_forward_and_no_logits(worst: Any, trains: bool) -> None:
    hidden, matrix, labels = hidden_and_matrix(torch.bfloat16, trains=trains)
    most = worst(lambda: FusedLinearLoss.apply(hidden, matrix, None, labels, False))
    gradients = 2 * TOKENS * WIDTH + (2 * WORDS * WIDTH if trains else 0)
    buffer = 2 * ROWS * WORDS
    assert 0 <= most - gradients - buffer < SLACK


def test_the_older_fused_loss_widens_a_chunk_while_the_one_before_is_still_there(worst: Any) -> None:
    hidden, matrix, labels = hidden_and_matrix(torch.bfloat16, trains=False)
    most = worst(lambda: FusedLinearLoss.apply(hidden, matrix, None, labels, True))
    chunk = ROWS * WORDS * (2 + 4 + 2)  # logits, their float32 form, the last chunk's gradient
    assert 0 <= most - 2 * TOKENS * WIDTH - chunk < SLACK


def test_in_place_loss_writes_its_gradient_over_the_logits() -> None:
    logits = torch.randn(4, 70_000, requires_grad=True) * 1
    seen: list[int] = []
    logits.register_hook(lambda gradient: seen.append(gradient.data_ptr()))
    InPlaceLoss.apply(logits, torch.zeros(4, dtype=torch.long)).sum().backward()
    assert seen == [logits.data_ptr()]


class Model(nn.Module):
    """What impose_loss asks of a class."""

    loss_function: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS, bias=False, dtype=torch.bfloat16)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, hidden: torch.Tensor, labels: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        logits = self.head(hidden)
        loss: torch.Tensor = self.loss_function(logits if scale == 1.0 else logits * scale, labels, WORDS)
        return loss


def model_with(kernel: str) -> Model:
    model = Model()
    impose_loss(model, model.head, settings_of(worksheet_from_mapping(sheet(step={"loss": kernel}))))
    return model


def test_chunked_keeps_all_logits_and_widens_an_eighth_at_a_time(worst: Any) -> None:
    model = model_with("chunked")
    hidden, labels = torch.zeros(1, TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True), torch.zeros(1, TOKENS, dtype=torch.long)
    most = worst(lambda: model(hidden, labels))
    logits = TOKENS * WORDS
    assert 0 <= most - (2 * logits + 4 * logits + 4 * logits // 8) < SLACK  # 16 bits; log-softmax of all; the last chunk in float32


@pytest.mark.parametrize("kernel", ["fused", "chunked"])
def test_a_class_that_makes_its_logits_twice_is_refused(recorder: Any, kernel: str) -> None:
    model = model_with(kernel)
    hidden = torch.zeros(1, TOKENS, WIDTH, dtype=torch.bfloat16)
    model.head(hidden)
    with pytest.raises(UnsupportedError, match="computes its loss by itself"):
        model.head(hidden)


def test_scaled_logits_are_inside_the_fused_kernel_and_refused_in_chunks(recorder: Any) -> None:
    hidden, labels = torch.zeros(1, TOKENS, WIDTH, dtype=torch.bfloat16), torch.zeros(1, TOKENS, dtype=torch.long)
    assert model_with("fused")(hidden, labels, 0.5).shape == ()
    with pytest.raises(UnsupportedError, match="changes its logits"):
        model_with("chunked")(hidden, labels, 0.5)


def test_offloaded_activations_leave_the_gpu_and_come_back(recorder: Any, worst: Any) -> None:
    size = 4 * 1024 * 1024
    x = torch.zeros(1024, 1024, requires_grad=True)
    recorder.hold([x], "weights")

    def forward() -> torch.Tensor:
        with activations_on_host(recorder):
            return x.sin().exp().cos().sum()  # sin keeps x, which stays; exp its result; cos its input, the same one

    assert worst(forward) == 2 * size  # an operation's input and its result
    before = host_peak_bytes(recorder.stream)
    loss = forward()
    assert before == host_peak_bytes(recorder.stream) == 2 * size
    copies = len(recorder.stream.tensors)
    loss.backward()
    assert [record.operation for record in recorder.stream.tensors[copies:]].count("aten.clone.default") == 2
    gone = {which for which, change in zip(recorder.stream.which, recorder.stream.sizes, strict=True) if change < 0}
    assert all(number in gone for number, record in enumerate(recorder.stream.tensors) if record.holding == "host")


def test_offload_of_activations_in_a_whole_step(traced: Any) -> None:
    at = {instant.at: instant for instant in traced(sheet(step={"activation_offload": True})).instants}
    kept = 2 * TOKENS * WIDTH  # the last norm's output, which the loss holds: it is the head's
    assert kept <= at["loss"].holdings.activations < kept + SLACK


def test_losses_in_a_whole_step(traced: Any) -> None:
    logits = TOKENS * WORDS
    held = {}
    for kernel in ("standard", "fused", "inplace"):
        at = {instant.at: instant.holdings.logits_and_loss for instant in traced(sheet(step={"loss": kernel})).instants}
        held[kernel] = at["loss"]
    assert 0 <= held["standard"] - 10 * logits < SLACK  # 16 bits, float32, log-softmax
    assert 0 <= held["inplace"] - 6 * logits < SLACK  # 16 bits, float32
    assert 0 <= held["fused"] - 2 * ROWS * WORDS - 2 * TOKENS * WIDTH < SLACK


def test_what_cannot_be_traced_is_refused_all_at_once(ask: Any) -> None:
    wrong = {"step": {"compile": True}, "precision": {"gradients": "float32"}, "optimizer": {"name": "galore"}}
    answer = ask(sheet(**wrong, layout={"pipeline": 2}, machine={"gpu": "H100-SXM", "gpus": 2}))
    found = {fault["where"] for fault in answer["unsupported"]}
    assert found == {"step.compile", "precision.gradients", "optimizer.name", "layout.pipeline"}


@pytest.mark.parametrize(
    ("version", "bytes_per_logit"),
    [
        ("5", 2 + 4 + 4),  # the model's, their float32 form, the log-softmax
        ("4.48", 2 + 4 + 4 + 4),  # and the copy without the last position
        ("4.45", 4 + 4 + 4),  # cast as soon as they are made
    ],
)
def test_the_loss_of_the_version_that_is_asked_for(version: str, bytes_per_logit: int, traced: Any) -> None:
    batch = {"sequence_tokens": TOKENS, "micro_batch": 2}  # of one row alone, what lacks the last position is no copy
    step = {"framework": "transformers", "framework_version": version}
    found = traced(sheet(step=step, batch=batch, precision={"autocast": False}))
    held = next(instant.holdings.logits_and_loss for instant in found.instants if instant.at == "loss")
    assert abs(held - bytes_per_logit * 2 * TOKENS * WORDS) < 2 * 8 * WORDS + SLACK  # two copies may lack a position of each row
