"""The exact report on one answer made by hand (see conftest.py): a change here is a change of what people read."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fullstep.calibration import Comparison
from fullstep.evidence import Assumption
from fullstep.job import Job
from fullstep.ledger import Answer, Holdings, Instant
from fullstep.plan.remedies import Remedy
from fullstep.quantities import GIB, Bounds
from fullstep.report.paper import Paper
from fullstep.report.text import answer_text, bar_lines

REPORT = """\
meta-llama/Llama-3.1-8B · full fine-tuning · float32 weights, bfloat16 compute ·
adamw · 4,096 tokens x 1 row x 4 accumulated x 8 ranks

  It fits: 8 x H100-SXM, state sharded over the GPUs (FSDP2); the step needs
  26.0 to 60.0 GiB of 79.0 GiB.

  Peak per GPU   25.0 GiB allocated (24.5-26.0) · 27.0-31.5 reserved · 29.0-34.0
                 on the device, of 79.0 usable · estimated
  needed         26.0-60.0 GiB = allocated + unavoidable fragmentation +
                 context: the verdict compares it; reserved may be larger
                 because the cache keeps what it can
  at             second forward of the accumulation, block 31
    weights               4.0 ███          gradients             4.0 ███
    optimizer states      7.0 ██████       activations           4.0 ███
    logits and loss       5.0 ████         gathered weights      1.0 █

  GiB            allocated  weights    grads   states   activ.   logits    other
  forward             16.0      4.0      0.0      7.0      4.0      0.0      1.0
  second forward      25.0      4.0      4.0      7.0      4.0      5.0      1.0
  optimizer step      19.0      4.0      4.0      7.0      0.0      0.0      4.0

  Other peaks    load 30.0 GiB
  Host memory    30.2 GiB per node at load, of 512.0, fits
  Beware         rows are longer than the model's positions (F011)
  Assumed        step.attention = sdpa (default of transformers 5) · and 2 more
                 under --json
  Sure?          estimated by formulas: 24.5-26.0 GiB allocated; to settle it,
                 run one full step and put its peak into [measured]
                 (torch.cuda.max_memory_allocated() / 2**30)
"""


def test_the_whole_report(job: Job, answer: Answer) -> None:
    assert answer_text(job, answer, Paper(width=80)) == REPORT


def test_nothing_is_wider_than_the_paper(job: Job, answer: Answer) -> None:
    for width in (80, 100, 140):
        assert max(len(line) for line in answer_text(job, answer, Paper(width=width)).splitlines()) <= width


def test_wide_paper_shows_every_holding(job: Job, answer: Answer) -> None:
    assert "gathered    temp." in answer_text(job, answer, Paper(width=100))


def test_colours_change_nothing_but_colours(job: Job, answer: Answer) -> None:

    coloured = answer_text(job, answer, Paper(width=80, colours=True))
    assert coloured != REPORT
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == REPORT


def test_ascii_holds_the_same_lines(job: Job, answer: Answer) -> None:
    text = answer_text(job, answer, Paper(width=80, unicode=False))
    assert text.isascii()
    assert "optimizer states      7.0 ######" in text
    assert len(text.splitlines()) == len(REPORT.splitlines())


def test_what_a_pilot_measured_is_shown_beside_the_estimate(job: Job, answer: Answer) -> None:
    measured = {"allocated_peak_bytes": Comparison(23.4 * GIB, Bounds(24 * GIB, 25 * GIB, 26 * GIB))}
    pilot = replace(answer, memory=replace(answer.memory, evidence="measured"), measured=measured)
    text = answer_text(job, pilot, Paper())
    assert "allocated: 23.4 GiB measured, 24.0-26.0 estimated; they disagree" in text
    assert "· measured" in text
    assert "a pilot's own figures" in text


def test_remedies_that_keep_the_training_come_first(job: Job, answer: Answer) -> None:
    helps = [
        Remedy({"step.loss": "fused"}, False, "fused linear cross entropy", answer),
        Remedy({"method.kind": "lora"}, True, "LoRA instead of all weights", answer),
    ]
    lines = answer_text(job, answer, Paper(), helps).splitlines()
    first = lines.index("  Would fit      fused linear cross entropy: 26.0-60.0 GiB needed")
    assert lines[first + 1] == "  Alters it      LoRA instead of all weights: 26.0-60.0 GiB needed"


def test_host_memory_can_decide(job: Job, answer: Answer) -> None:
    short = replace(answer, host=replace(answer.host, verdict="does_not_fit"))
    assert "Does not fit: 8 x H100-SXM" in answer_text(job, short, Paper())
    words = " ".join(answer_text(job, short, Paper()).split())
    assert "the node needs 30.2 GiB of host memory at load" in words


@pytest.mark.parametrize(("size_gib", "signs"), [(5, 10), (2.5, 5), (0.1, 1)])
def test_a_bar_is_half_the_peak_long(size_gib: float, signs: int) -> None:
    """Ten signs are half of what is alive: 5 of 10 GiB fill the bar, and what shows in GiB shows here."""
    peak = Instant("forward", Holdings(weights=size_gib * GIB, activations=(10 - size_gib) * GIB))
    assert bar_lines(peak, Paper())[0].split("activations")[0].count("█") == signs


def test_what_does_not_show_in_gib_gets_no_bar_and_no_column(job: Job, answer: Answer) -> None:
    """0.04 GiB rounds to 0.0."""
    instant = Instant("forward", Holdings(weights=9.96 * GIB, buffers=0.04 * GIB))
    assert "buffers" not in "".join(bar_lines(instant, Paper()))
    small = replace(answer, memory=replace(answer.memory, instants=(instant,), peak_at="forward"))
    assert "buffers" not in answer_text(job, small, Paper())


def test_a_small_model_stands_in_mib(job: Job, answer: Answer) -> None:
    """All of it but what GPUs and hosts have: in GiB its parts would be 0.0."""
    mib = GIB / 1024
    instant, peak = Instant("forward", Holdings(weights=3 * mib, buffers=17 * mib)), Bounds(19 * mib, 20 * mib, 30 * mib)
    memory = replace(answer.memory, instants=(instant,), peak_at="forward", allocated_peak_bytes=peak)
    lines = answer_text(job, replace(answer, memory=memory), Paper()).splitlines()
    words = " ".join(" ".join(lines).split())
    assert "Peak per GPU 20.0 MiB allocated (19.0-30.0) ·" in words and "of 79.0 GiB usable" in words
    head = next(number for number, line in enumerate(lines) if line.startswith("  MiB "))
    assert lines[head].split() == ["MiB", "allocated", "weights", "buffers"] and lines[head + 1].split()[1:] == ["20.0", "3.0", "17.0"]
    assert "estimated by formulas: 19.0-30.0 MiB allocated" in words


def test_weights_keep_their_column_on_narrow_paper(job: Job, answer: Answer) -> None:
    """Eight holdings, six columns: the weights are the smallest of all and still have their own."""
    instant = Instant("forward", Holdings(1 * GIB, *(size * GIB for size in (2, 3, 4, 5, 6, 7, 8))))
    many = replace(answer, memory=replace(answer.memory, instants=(instant,), peak_at="forward"))
    lines = answer_text(job, many, Paper(width=80)).splitlines()
    head = next(line for line in lines if line.startswith("  GiB"))
    assert head.split()[2:] == ["weights", "logits", "gathered", "temp.", "buffers", "other"]
    row = next(line for line in lines if line.startswith("  forward"))
    assert row.split()[1:] == ["36.0", "1.0", "5.0", "6.0", "7.0", "8.0", "9.0"]


def test_a_measured_peak_stands_over_an_estimated_table(job: Job, answer: Answer) -> None:
    text = answer_text(job, replace(answer, memory=replace(answer.memory, evidence="measured")), Paper())
    assert "table: estimated" in text and "  GiB, estimated" in text
    assert "table: estimated" not in answer_text(job, answer, Paper())


def test_what_matters_most_to_memory_is_assumed_first_in_six_lines(job: Job, answer: Answer) -> None:
    keys = [*(f"optimizer.key_{number}" for number in range(40)), "precision.weights", "step.loss", "model.config.num_hidden_layers"]
    told = replace(answer, assumptions=tuple(Assumption(key, "x", "because " * 20) for key in keys))
    lines = answer_text(job, told, Paper(width=80)).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("  Assumed"))
    end = next(number for number, line in enumerate(lines) if line.startswith("  Sure?"))
    assert end - start <= 6
    said = " ".join(line.strip() for line in lines[start:end])
    assert said.startswith("Assumed        model.config.num_hidden_layers = x · step.loss = x · precision.weights = x")
    assert re.search(r"and \d+ more under --json$", said)
    assert "…" not in said and "because" not in said
