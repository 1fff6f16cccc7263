"""A traced step for the terminal: the verdict, estimated beside traced, the course of the step, and what is alive at its peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fullstep.job import Settings
from fullstep.ledger import Answer, LiveTensor, ModuleShare, Trace
from fullstep.quantities import GIB, MIB
from fullstep.report.instants import instants_lines
from fullstep.report.paper import Paper, cut, cut_front
from fullstep.report.text import closing_lines, memory_lines, other_lines, remedy_lines, verdict_lines
from fullstep.report.timeline import moment_words, peak_of, timeline_lines
from fullstep.report.timing_text import timing_lines
from fullstep.report.trace_json import flops_by_phase
from fullstep.report.wording import HOLDING_WORDS, headline, unit_of

if TYPE_CHECKING:
    from fullstep.plan.remedies import Remedy

_SHOWN_TENSORS = 10
_SHOWN_MODULES = 8
_INDENT = "    "
_LONGEST_SHAPE = 24
_NO_MODULE = "(outside the model)"


def trace_text(job: Settings, answer: Answer, paper: Paper, remedies: Sequence[Remedy] = ()) -> str:
    """The whole report on one traced worksheet.

    Args:
        job: the completed worksheet
        answer: with a trace
        paper: how to print
        remedies: single changes that would make it fit by the formulas, best first

    Raises:
        ValueError: the answer has no trace
    """
    trace = answer.trace
    if trace is None:
        raise ValueError("an answer without a trace")
    lines = [paper.ink(piece, "bold") for piece in paper.sentence(headline(job), indent=0)]
    lines += ["", *verdict_lines(job, answer, paper), ""]
    lines += memory_lines(answer, paper)
    lines += ["", *instants_lines(answer, paper)]
    lines += _not_estimated(answer, paper)
    lines += ["", *_course_lines(job, trace, paper)]
    lines += ["", *tensor_lines(trace, paper)]
    lines += ["", *module_lines(trace.modules, trace.allocated_peak_bytes, paper), ""]
    lines += other_lines(job, answer, paper)
    lines += timing_lines(job, answer, paper)
    lines += paper.entry("FLOPs", flops_words(trace))
    lines += paper.entry("Traced", traced_words(trace))
    lines += remedy_lines(remedies, paper)
    lines += closing_lines(answer, paper)
    return paper.finish(lines)


def _not_estimated(answer: Answer, paper: Paper) -> list[str]:
    """Why there is nothing to put the trace beside."""
    why = next((assumption.why for assumption in answer.assumptions if assumption.key == "trace.estimated"), None)
    return [] if why is None else ["", *paper.entry("Estimate", f"none: {why}")]


def _course_lines(job: Settings, trace: Trace, paper: Paper) -> list[str]:
    drawing = timeline_lines(trace.timeline, paper)
    if not drawing:
        return []
    words = moment_words(peak_of(trace.timeline), job.batch.accumulation)
    return [paper.ink(f"  Allocated in the course of step {trace.timeline[0].step}, peak at: {words}", "bold"), *drawing]


def tensor_lines(trace: Trace, paper: Paper) -> list[str]:
    """Why the peak is as large as it is: the largest tensors that are alive at it, each with the line of code that made it."""
    peak = trace.allocated_peak_bytes
    lines = [paper.ink(f"  Why {unit_of(peak).sized(peak)}? The largest tensors alive at the peak:", "bold")]
    shown = trace.largest[:_SHOWN_TENSORS]
    shapes = [_shape_words(tensor) for tensor in shown]
    wide = max((len(shape) for shape in shapes), default=0)
    for tensor, shape in zip(shown, shapes, strict=True):
        holding = HOLDING_WORDS.get(tensor.holding, tensor.holding)
        what = f"{_size(tensor.size_bytes):>9}  {shape:<{wide}}  {tensor.dtype:<8}  {holding}"
        lines.append(cut(f"{_INDENT}{what}", paper.width))
        module = cut_front(tensor.module, paper.width * 2 // 5)
        origin = " · ".join(filter(None, (module, tensor.line or tensor.operation)))
        lines.append(paper.ink(cut(f"{_INDENT}{'':>11}{origin}", paper.width), "dim"))
    rest = peak - sum(tensor.size_bytes for tensor in shown)
    return [*lines, f"{_INDENT}{_size(rest):>9}  everything else"] if rest > 0 else lines


def _shape_words(tensor: LiveTensor) -> str:
    """``31 x [1, 4096, 4096]``: how many of which shape; the middle of a long shape is left out."""
    shape = f"[{', '.join(map(str, tensor.shape))}]"
    return cut(shape if tensor.copies == 1 else f"{tensor.copies} x {shape}", _LONGEST_SHAPE)


def module_lines(modules: Sequence[ModuleShare], peak_bytes: int, paper: Paper) -> list[str]:
    """The modules that hold most at the peak; the longest bar is half of it."""
    if not modules:
        return []
    lines = [paper.ink("  By module:", "bold")]
    for share in modules[:_SHOWN_MODULES]:
        bar = paper.bar(2 * share.size_bytes / (peak_bytes or 1))
        holding = HOLDING_WORDS.get(share.holding, share.holding)
        before = f"{_INDENT}{_size(share.size_bytes):>9}  {bar:<10}  {holding:<16}  "
        lines.append(before + cut_front(share.module or _NO_MODULE, paper.width - len(before)))
    return lines


def flops_words(trace: Trace) -> str:
    """Floating-point operations of the step and of its phases."""
    phases = " · ".join(f"{phase.replace('_', ' ')} {_tera(flops)}" for phase, flops in flops_by_phase(trace).items())
    whole = f"{_tera(trace.flops_per_step)} TFLOP a step on this GPU, recomputation included"
    return f"{whole}: {phases}" if phases else whole


def traced_words(trace: Trace) -> str:
    """How the trace was made: blocks, operations, versions, time."""
    blocks = f"{trace.blocks_traced} of {trace.blocks} blocks, equal ones repeated" if trace.blocks_traced < trace.blocks else "every block"
    took = f"{trace.seconds:.1f} s" if trace.seconds else "from the cache"
    versions = [f"{name} {version}" for name, version in trace.versions]
    return " · ".join((blocks, f"{trace.operations:,} operations", f"{trace.segments:,} segments", *versions, took))


def _tera(flops: int) -> str:
    """Operations in units of 10^12.

    >>> _tera(265_800_000_000_000), _tera(4_200_000_000)
    ('265.8', '0.0042')
    """
    tera = flops / 1e12
    return f"{tera:,.1f}" if tera >= 1 else f"{tera:.3g}"


def _size(size_bytes: float) -> str:
    """A size in the unit in which it shows.

    >>> _size(3 * 2**30), _size(5 * 2**20)
    ('3.0 GiB', '5.0 MiB')
    """
    return f"{size_bytes / GIB:,.1f} GiB" if size_bytes >= 999.95 * MIB else f"{size_bytes / MIB:,.1f} MiB"
