"""The exact report on a trace made by hand (see trace_by_hand.py): a change here is a change of what people read."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from trace_by_hand import TRACE, timeline

from fullstep.calibration import Comparison
from fullstep.evidence import Assumption
from fullstep.job import Job, settings_of, worksheet_from_mapping
from fullstep.ledger import Answer, Holdings, Instant, MemoryEstimate, OtherPeaks
from fullstep.quantities import GIB, Bounds
from fullstep.report.instants import difference, instants_lines
from fullstep.report.paper import Paper
from fullstep.report.text import answer_text, memory_lines
from fullstep.report.trace_text import flops_words, module_lines, tensor_lines, trace_text, traced_words

WITNESSES = """\
  GiB            allocated  weights    grads   states   activ.   logits    other
  forward
    estimated         16.0      4.0      0.0      7.0      4.0      0.0      1.0
    traced            16.0      4.0      0.0      7.0      4.0      0.0      1.0
    difference      +0.0 %   +0.0 %            +0.0 %   +0.0 %            +0.0 %
  loss
    estimated         20.0      4.0      0.0      7.0      4.0      5.0      0.0
    traced               -
  second forward (peak)
    estimated         20.0      4.0      4.0      7.0      0.0      5.0      0.0
    traced            25.0      4.0      4.0      7.0      4.0      5.0      1.0
    difference     +25.0 %   +0.0 %   +0.0 %   +0.0 %      new   +0.0 %      new
  optimizer step
    estimated
    traced            18.5      4.0      4.0      7.0      0.0      0.0      3.5
"""
TENSORS = """\
  Why 25.0 GiB? The largest tensors alive at the peak:
      7.0 GiB  582 x [1, 2048, 4096]  float32   optimizer states
               model.layers.*.mlp.down_proj · adamw.py:150 state['exp_avg'] = t…
      4.0 GiB  291 x [512, 4096]      float32   weights
               model.layers.*.self_attn.q_proj · aten.empty
      2.5 GiB  [1, 4096, 128256]      float32   logits and loss
               lm_head · loss_utils.py:56 logits = logits.float()
     11.5 GiB  everything else
"""
MODULES = """\
  By module:
      5.0 GiB  ████        optimizer states  model.layers.*.mlp
      5.0 GiB  ████        logits and loss   lm_head
     80.0 MiB  █           activations       model.layers.*.input_layernorm
"""


@pytest.fixture
def estimated() -> MemoryEstimate:
    """20 GiB at the loss and in the second forward, and nothing said of the optimizer step."""
    bounds = Bounds(19 * GIB, 20 * GIB, 22 * GIB)
    instants = (
        TRACE.instants[0],
        Instant("loss", Holdings(4 * GIB, 0, 7 * GIB, 4 * GIB, 5 * GIB)),
        Instant("second_forward", Holdings(4 * GIB, 4 * GIB, 7 * GIB, 0, 5 * GIB)),
    )
    return MemoryEstimate(1, 1, instants, "loss", bounds, bounds, bounds, bounds, OtherPeaks(), 0, "load")


@pytest.fixture
def traced(answer: Answer, estimated: MemoryEstimate) -> Answer:
    memory = replace(answer.memory, evidence="traced", instants=TRACE.instants)
    return replace(answer, memory=memory, trace=TRACE, estimated=estimated)


def written(lines: list[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"


def test_estimated_beside_traced_line_by_line(traced: Answer) -> None:
    assert written(instants_lines(traced, Paper(width=80))) == WITNESSES.replace("estimated\n", "estimated            -\n", 1)


def test_why_the_peak_is_so_large() -> None:
    assert written(tensor_lines(TRACE, Paper(width=80))) == TENSORS
    assert written(module_lines(TRACE.modules, TRACE.allocated_peak_bytes, Paper(width=80))) == MODULES


def test_the_whole_report_in_its_order(job: Job, traced: Answer) -> None:
    text = trace_text(job, traced, Paper(width=80))
    parts = [
        "meta-llama/Llama-3.1-8B", "  It fits: 8 x H100-SXM", "  Peak per GPU   25.0 GiB allocated",
        "estimated: 20.0 GiB allocated (19.0-22.0)", "  GiB            allocated",
        "  Allocated in the course of step 2, peak at: micro-batch 2 of 4, loss", "▼", "  Why 25.0 GiB?",
        "  By module:", "  Other peaks", "  FLOPs", "  Traced", "  Beware", "  Assumed", "  Sure?          traced: one step",
    ]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_nothing_is_wider_than_the_paper(width: int, job: Job, traced: Answer) -> None:
    tensor = TRACE.largest[0]._replace(shape=(2**40,) * 9, module="m" * 200, line="x" * 200, dtype="float8_e4m3fn")
    long = TRACE._replace(timeline=timeline(16), largest=(tensor,))
    text = trace_text(job, replace(traced, trace=long), Paper(width=width))
    assert max(map(len, text.splitlines())) <= width


def test_colours_change_nothing_but_colours(job: Job, traced: Answer) -> None:
    plain = trace_text(job, traced, Paper(width=80))
    coloured = trace_text(job, traced, Paper(width=80, colours=True))
    assert coloured != plain and re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_ascii_holds_the_same_lines(job: Job, traced: Answer) -> None:
    text = trace_text(job, traced, Paper(width=80, unicode=False))
    assert text.isascii() and text.count("?") == trace_text(job, traced, Paper(width=80)).count("?")


def test_text_of_the_model_cannot_steer_the_terminal(job: Job, traced: Answer) -> None:
    tensor, share = TRACE.largest[0]._replace(line="a.py:1 \x1b[2J"), TRACE.modules[0]._replace(module="\x1b[2J")
    evil = TRACE._replace(largest=(tensor,), modules=(share,))
    assert "\x1b[2J" not in trace_text(job, replace(traced, trace=evil), Paper(width=100, colours=True))


def test_a_model_that_the_formulas_do_not_know(traced: Answer) -> None:
    settings = settings_of(worksheet_from_mapping({"model": {"config": {"model_type": "mamba"}}, "machine": {"gpu": "H100-SXM"}}))
    why = Assumption("trace.estimated", None, 'the formulas do not cover it: model type "mamba"')
    host = replace(traced.host, evidence="traced", memory_peak_bytes=0, verdict="unknown")
    alone = replace(traced, estimated=None, assumptions=(why,), host=host)
    text = trace_text(settings, alone, Paper(width=100))
    assert text.startswith("the inline config · full fine-tuning")
    assert 'Estimate       none: the formulas do not cover it: model type "mamba"' in text
    assert "GiB, traced" in text and "difference" not in text and "0.0 GiB offloaded per node" in text


def test_a_pilot_stands_beside_both(traced: Answer) -> None:
    row = Comparison(26 * GIB, Bounds(19 * GIB, 20 * GIB, 22 * GIB), Bounds(24.7 * GIB, 25 * GIB, 26.2 * GIB))
    pilot = replace(traced, memory=replace(traced.memory, evidence="measured"), measured={"allocated_peak_bytes": row})
    text = " ".join(" ".join(memory_lines(pilot, Paper())).split())
    assert "allocated: 26.0 GiB measured, 19.0-22.0 estimated, 24.7-26.2 traced" in text and "they disagree" not in text
    assert "table: traced, the peak is the pilot's" in text


def test_an_estimate_of_a_traced_answer_shows_both(job: Job, traced: Answer) -> None:
    assert "second forward (peak)" in answer_text(job, traced, Paper(width=80))


def test_differences_in_percent_of_the_estimate() -> None:
    assert difference(10 * GIB, 9.5 * GIB) == "-5.0 %"
    assert difference(GIB, 3.5 * GIB) == "+250 %"
    assert (difference(0, GIB), difference(0.04 * GIB, 0.01 * GIB)) == ("new", "")


def test_flops_add_up_by_phase() -> None:
    """Each micro-batch: 32 blocks of 2 forward and 4 backward, and 4 in the loss."""
    assert flops_words(TRACE) == "392.0 TFLOP a step on this GPU, recomputation included: forward 128.0 · loss 8.0 · backward 256.0"


def test_how_it_was_traced() -> None:
    assert traced_words(TRACE).startswith("7 of 32 blocks, equal ones repeated · 17,432 operations · 493 segments · torch 2.13.0")
    assert traced_words(TRACE).endswith("7.9 s")
    assert traced_words(TRACE._replace(blocks_traced=32, seconds=0)).startswith("every block · ")
    assert traced_words(TRACE._replace(seconds=0)).endswith("from the cache")


def test_a_report_on_a_trace_needs_one(job: Job, answer: Answer) -> None:
    with pytest.raises(ValueError, match="without a trace"):
        trace_text(job, answer, Paper())
