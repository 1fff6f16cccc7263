"""Two or more worksheets side by side, line by line, with what the last differs by from the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fullstep.errors import printable
from fullstep.job import Settings
from fullstep.ledger import HOLDINGS, Answer
from fullstep.plan.layouts import layout_name, machine_words
from fullstep.report.paper import Paper, cut
from fullstep.report.wording import HOLDING_WORDS, IN_GIB, INSTANTS, VERDICT_INK, VERDICTS, Unit, method_words, model_words, unit_of


class Column(NamedTuple):
    """One worksheet of a comparison."""

    name: str
    job: Settings
    answer: Answer


_SETTINGS: tuple[tuple[str, Callable[[Settings], str]], ...] = (
    ("model", lambda job: model_words(job).rpartition("/")[2]),
    ("method", method_words),
    ("weights", lambda job: job.precision.weights if job.method.quantization == "none" else f"{job.method.quantization} base"),
    ("compute", lambda job: job.precision.compute),
    ("optimizer", lambda job: f"{job.optimizer.name} ({job.optimizer.implementation})"),
    ("tokens a row", lambda job: f"{job.batch.sequence_tokens:,}"),
    ("rows a GPU", lambda job: f"{job.batch.micro_batch} x {job.batch.accumulation}"),
    ("recomputation", lambda job: str(job.step.activation_checkpointing)),
    ("attention", lambda job: job.step.attention),
    ("loss", lambda job: job.step.loss),
    ("layout", lambda job: layout_name(job.layout)),
    ("machine", machine_words),
)


_NARROWEST = 14
_GAP = 2
_BESIDE = 34
"""the label on the left and the difference on the right"""
_COUNTERS = (
    ("allocated", "allocated_peak_bytes"),
    ("reserved", "reserved_peak_bytes"),
    ("device", "device_peak_bytes"),
    ("needed", "needed_bytes"),
)


def comparison_text(columns: Sequence[Column], paper: Paper) -> str:
    """Settings that differ, then every figure of all of them; sizes in GiB. Where the paper is too narrow for all of them there are
    several tables, each of which begins with the first worksheet.

    Args:
        columns: two or more
        paper: how to print
    """
    unit = unit_of(max(column.answer.memory.allocated_peak_bytes.likely for column in columns))
    narrowest = max(_NARROWEST, *(len(_counter_cell(column, counter, unit)) for column in columns for _, counter in _COUNTERS))
    room = max(2, (paper.width - _BESIDE) // (narrowest + _GAP))
    tables = [[columns[0], *columns[start : start + room - 1]] for start in range(1, len(columns), room - 1)]
    lines: list[str] = []
    for table in tables:
        width = max(narrowest, min(26, (paper.width - _BESIDE) // len(table) - _GAP))
        lines += ([""] if lines else []) + _table(table, width, unit, paper)
    return paper.finish([*lines, "", *_differing_keys(columns, paper)])


def _table(columns: Sequence[Column], width: int, unit: Unit, paper: Paper) -> list[str]:
    lines = [_row("", [_tail(column.name, width) for column in columns], "difference", width)]
    settings = [(label, [read(column.job) for column in columns]) for label, read in _SETTINGS]
    differing = [(label, texts) for label, texts in settings if len(set(texts)) > 1]
    lines += [_row(label, texts, "", width) for label, texts in differing]
    lines += ["", f"  one GPU, {unit.name}: likely (low-high)"]
    verdicts = [column.answer.memory.verdict for column in columns]
    lines.append(_verdict_row(verdicts, width, paper))
    words = [column.answer.memory.evidence for column in columns]
    if set(words) != {"estimated"}:
        lines.append(_row("evidence", words, "", width))
    for label, counter in _COUNTERS:
        bounds = [getattr(column.answer.memory, counter) for column in columns]
        texts = [_counter_cell(column, counter, unit) for column in columns]
        lines.append(_row(label, texts, _difference([each.likely for each in bounds], unit), width))
    usable = [column.answer.memory.usable_bytes for column in columns]
    lines.append(_row("usable", ["unknown" if each is None else unit.number(each) for each in usable], "", width))
    lines.append(_row("peak at", [column.answer.memory.peak_at.replace("_", " ") for column in columns], "", width))
    lines += ["", *_holding_rows(columns, width, unit), "", *_instant_rows(columns, width, unit)]
    hosts = [column.answer.host.memory_peak_bytes for column in columns]
    lines += ["", _row("host memory, GiB", [IN_GIB.number(each) for each in hosts], _difference(hosts, IN_GIB), width)]
    return [*lines, *_time_rows(columns, width)]


def _time_rows(columns: Sequence[Column], width: int) -> list[str]:
    """What steps and runs take, send and save, as far as it is known of one at least; beside two columns the second over the first."""
    timings = [column.answer.timing for column in columns]
    steps = [None if timing is None else timing.step for timing in timings]
    runs = [None if timing is None else timing.run for timing in timings]
    sent = [None if timing is None else timing.traffic for timing in timings]
    saves = [column.answer.checkpoint for column in columns]
    figures: tuple[tuple[str, list[float | None], str, float], ...] = (
        ("step, s", [None if step is None else step.seconds.likely for step in steps], ".3g", 1.0),
        ("tokens/s per GPU", [None if step is None else step.tokens_per_second_per_gpu.likely for step in steps], ",.0f", 1.0),
        ("run, h", [None if run is None else run.seconds.likely for run in runs], ".3g", 3600.0),
        ("steps", [None if run is None else float(run.optimizer_steps) for run in runs], ",.0f", 1.0),
        ("sent in a node, GB", [None if one is None else one.inside_node_bytes for one in sent], ",.1f", 1e9),
        ("between nodes, GB", [None if one is None else one.between_nodes_bytes for one in sent], ",.1f", 1e9),
        ("checkpoint, GB", [None if one is None else one.resumable_bytes for one in saves], ",.1f", 1e9),
        ("export, GB", [None if one is None else one.export_bytes for one in saves], ",.1f", 1e9),
    )
    rows = []
    for label, values, form, unit in figures:
        if any(values):
            texts = ["not known" if value is None else _figure(value / unit, form) for value in values]
            first, last = values[0], values[-1]
            rows.append(_row(label, texts, f"x {last / first:.2f}" if len(values) == 2 and first and last else "", width))
    return ["", "  time, traffic and checkpoints, likely", *rows] if rows else []


def _figure(value: float, form: str) -> str:
    """Three digits, or all of those before the point.

    >>> _figure(0.01835, ".3g"), _figure(1234.5, ".3g"), _figure(0.004, ",.1f")
    ('0.0184', '1,234', '0.004')
    """
    if form == ".3g" and value >= 1000:
        return f"{value:,.0f}"
    return format(value, ".3g" if 0 < value < 0.1 else form)


def _counter_cell(column: Column, counter: str, unit: Unit) -> str:
    bounds = getattr(column.answer.memory, counter)
    likely, ends = unit.number(bounds.likely), unit.span(bounds)
    return likely if likely == ends else f"{likely} ({ends})"


def _differing_keys(columns: Sequence[Column], paper: Paper) -> list[str]:
    """The keys that at least one worksheet states and that are not the same in all of them, defaults filled in."""
    jobs = [column.job for column in columns]
    sections = [section for job in jobs for section in job.worksheet.as_dict().items() if isinstance(section[1], dict)]
    stated = dict.fromkeys(f"{section}.{name}" for section, keys in sections for name in keys)
    differing = [dotted for dotted in stated if any(_setting(job, dotted) != _setting(jobs[0], dotted) for job in jobs)]
    return paper.entry("Keys", f"{', '.join(differing)} differ" if differing else "none differ")


def _setting(job: Settings, dotted: str) -> object:
    """A key's value in a completed job; where jobs do not hold it under its own name, as stated."""
    section, _, name = dotted.partition(".")
    return getattr(getattr(job, section, None), name, job.worksheet.stated(dotted))


def _holding_rows(columns: Sequence[Column], width: int, unit: Unit) -> list[str]:
    rows = []
    for index, name in enumerate(HOLDINGS):
        sizes = [column.answer.memory.peak.holdings[index] for column in columns]
        if any(map(unit.shows, sizes)):
            rows.append(_row(HOLDING_WORDS[name], [unit.number(size) for size in sizes], _difference(sizes, unit), width))
    return [f"  at the peak, {unit.name}", *rows]


def _instant_rows(columns: Sequence[Column], width: int, unit: Unit) -> list[str]:
    rows = [f"  allocated at each instant, {unit.name}"]
    for at in INSTANTS:
        found = [_allocated_at(column.answer, at) for column in columns]
        known = [size for size in found if size is not None]
        if known:
            difference = _difference(known, unit) if len(known) == len(found) else ""
            rows.append(_row(at.replace("_", " "), ["-" if size is None else unit.number(size) for size in found], difference, width))
    return rows


def _allocated_at(answer: Answer, at: str) -> float | None:
    return next((instant.allocated_bytes for instant in answer.memory.instants if instant.at == at), None)


def _row(label: str, cells: Sequence[str], difference: str, width: int) -> str:
    return f"  {label:<18}" + "".join(f"{cut(cell, width):>{width + 2}}" for cell in cells) + f"  {difference:>12}"


def _verdict_row(verdicts: Sequence[str], width: int, paper: Paper) -> str:
    cells = "".join(paper.ink(f"{VERDICTS[verdict]:>{width + 2}}", "bold", VERDICT_INK[verdict]) for verdict in verdicts)
    return f"  {'verdict':<18}{cells}"


def _difference(sizes: Sequence[float], unit: Unit) -> str:
    """Last minus first, signed; nothing where both print the same."""
    text = f"{(sizes[-1] - sizes[0]) / unit.size_bytes:+,.1f}"
    return "" if text in ("+0.0", "-0.0") else text


def _tail(name: str, width: int) -> str:
    """The end of a path: what tells files apart stands there."""
    name = printable(name)
    return name if len(name) <= width else "…" + name[1 - width :]
