"""peft's own measured runs against traces: ``python validation/peft_runs.py [--trace PATTERN ...]`` writes ``peft_runs.md``.

The runs are those of peft's method comparison (MetaMathQA): Llama-3.2-3B on one L40S, four padded rows a step, weights in bfloat16,
adapters in float32 without autocast. Measured is the 99th percentile, over 5,000 steps, of ``torch.cuda.memory_reserved()`` at the end
of a step. The loop sorts every 80 rows from long to short and empties the allocator's cache every ten steps, so that the longest batch of
each 80 rows meets an empty cache: the second step of a trace is replayed behind ``empty_cache()``, as there. The loop calls the model as
it is and holds on to what it gives back during backward: logits, and the cache of keys and values, which a worksheet cannot ask for and
which is switched on here. How long the longest batch is was not published.

``--trace`` traces again (those whose id contains one of the patterns; all without one); it needs the extra ``lab``.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RUNS = HERE / "peft_runs.jsonl"
TRACED = HERE / "peft_runs_traced.jsonl"
PAGE = HERE / "peft_runs.md"
LENGTHS = (645, 607)
"""tokens of the longest batch: as first guessed from one run by an earlier tracer; and where this tracer meets the runs LONGEST_FROM"""
LONGEST_FROM = ("peft-lora--llama-3.2-3B-rank32", "peft-full-finetuning--llama-3.2-3B-lr_0.00001")
GIB = 2**30


class Row(NamedTuple):
    """One run beside its traces."""

    id: str
    measured_bytes: int
    not_stated: tuple[str, ...]
    """what the run has otherwise than the trace, because a worksheet cannot say it or because peft has changed since"""
    traced_bytes: tuple[int, ...]
    """reserved behind an emptied cache, by LENGTHS; empty: refused"""
    trainable: tuple[int, int]
    """parameters trained: in the run, in the trace"""
    refused: str

    @property
    def name(self) -> str:
        """For people."""
        return self.id.removeprefix("peft-").replace("--llama-3.2-3B-", ", ")

    def errors_percent(self) -> tuple[float, ...]:
        """Traced against measured, by LENGTHS."""
        return tuple(100 * (traced / self.measured_bytes - 1) for traced in self.traced_bytes)

    def same_method(self) -> bool:
        """Whether the worksheet says all of the run: as many parameters train and nothing is left unsaid."""
        return bool(self.traced_bytes) and not self.not_stated and self.trainable[0] == self.trainable[1]


def rows() -> list[Row]:
    """All runs in the order of their file, with the stored traces."""
    traced: dict[tuple[str, int], dict[str, Any]] = {(each["id"], each["sequence_tokens"]): each for each in _lines(TRACED)}
    found = []
    for run in _lines(RUNS):
        traces = [traced[run["id"], tokens] for tokens in LENGTHS]
        refused = traces[0].get("refused", "")
        found.append(
            Row(
                id=run["id"],
                measured_bytes=run["measured"]["reserved_p99_bytes"],
                not_stated=tuple(run["not_stated"]),
                traced_bytes=() if refused else tuple(trace["reserved_bytes"] for trace in traces),
                trainable=(run["measured"]["trainable_parameters"], 0 if refused else traces[0]["trainable_parameters"]),
                refused=refused,
            )
        )
    return found


def mean_errors_percent(of: Iterable[Row]) -> tuple[float, ...]:
    """Mean of the errors without their signs, by LENGTHS."""
    return tuple(statistics.fmean(abs(error) for error in errors) for errors in zip(*(row.errors_percent() for row in of), strict=True))


def page() -> str:
    """The page, from the stored traces."""
    every = rows()
    traced = [row for row in every if row.traced_bytes]
    same = [row for row in traced if row.same_method()]
    guessed, found = LENGTHS
    lines = [
        "# peft's measured runs against traces",
        "",
        *(__doc__ or "").split("\n\n")[1].split("\n"),
        "",
        f"Lengths: {guessed} tokens were guessed from one run with an earlier tracer; {found} tokens are where this tracer meets",
        "two of the runs (LoRA of rank 32 and full fine-tuning). With the model's output held during backward, more is allocated at",
        f"{guessed} tokens than LoRA's run reserved in 99 of 100 steps: the longest batch was shorter.",
        "",
        f"Mean error over the {len(traced)} runs that can be traced: {_pair(mean_errors_percent(traced))}.",
        f"Over the {len(same)} of them that a worksheet can say in full: {_pair(mean_errors_percent(same))}.",
        "",
        f"| run | measured, GiB | traced at {guessed}, GiB | error, % | traced at {found}, GiB | error, % | what the run has otherwise |",
        "|---|---|---|---|---|---|---|",
        *map(_row, traced),
        "",
        "Not traced:",
        "",
        *(f"- {row.name}: {row.refused}" for row in every if row.refused),
    ]
    return "\n".join(lines) + "\n"


def _pair(errors: tuple[float, ...]) -> str:
    return ", ".join(f"{error:.2f} % at {tokens} tokens" for error, tokens in zip(errors, LENGTHS, strict=True))


def _row(row: Row) -> str:
    pairs = zip(row.traced_bytes, row.errors_percent(), strict=True)
    cells = [cell for traced, error in pairs for cell in (f"{traced / GIB:.3f}", f"{error:+.2f}")]
    return " | ".join([f"| {row.name}", f"{row.measured_bytes / GIB:.3f}", *cells, "; ".join(row.not_stated) + " |"])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


# tracing


def trace_again(patterns: list[str]) -> None:
    """Traces runs whose id contains one of ``patterns`` at all lengths, and stores what was found."""
    stored = {(each["id"], each["sequence_tokens"]): each for each in _lines(TRACED)} if TRACED.exists() else {}
    for run in _lines(RUNS):
        if patterns and not any(pattern in run["id"] for pattern in patterns):
            continue
        for tokens in LENGTHS:
            stored[run["id"], tokens] = {"id": run["id"], "sequence_tokens": tokens} | traced(run["worksheet"], tokens)
            print(stored[run["id"], tokens], flush=True)
            TRACED.write_text("".join(json.dumps(each) + "\n" for each in stored.values()), encoding="utf-8")


def traced(worksheet: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """One trace in a process of its own: allocated and reserved bytes of the second step, or why it was refused."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as out:
            pickle.dump(_trace(worksheet, tokens), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = pickle.loads(text)
    return found


def _trace(worksheet: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    from fullstep.errors import UnsupportedError  # noqa: PLC0415
    from fullstep.job import settings_of, worksheet_from_mapping  # noqa: PLC0415
    from fullstep.lab.trace.front.limits import faults_of  # noqa: PLC0415
    from fullstep.lab.trace.worker import layout, method, session  # noqa: PLC0415
    from fullstep.lab.trace.worker.compat import UNITS, install_all  # noqa: PLC0415
    from fullstep.lab.trace.worker.replicate import NotAlikeError  # noqa: PLC0415
    from fullstep.lab.trace.worker.run import Run  # noqa: PLC0415
    from fullstep.models import model_config  # noqa: PLC0415

    told = worksheet_from_mapping({**worksheet, "batch": {**worksheet["batch"], "sequence_tokens": tokens}})
    settings = settings_of(told)
    if faults := faults_of(settings):
        return {"refused": "; ".join(fault.found for fault in faults)}
    install_all(UNITS)
    session._say_what_cannot_be_asked(settings)
    method.apply_method = _with_cache(method.apply_method)
    run = Run(model_config(told.section("model"))[0], settings, layout.make_mesh(settings), lambda _: None)
    try:
        stream, _ = run.shortened()
    except NotAlikeError:
        stream, _ = run.whole()
    except UnsupportedError as error:
        return {"refused": "; ".join(fault.found for fault in error.faults)}
    return {"trainable_parameters": run.sizes.trainable_parameters} | behind_an_emptied_cache(stream)


def _with_cache(apply_method: Callable[..., Any]) -> Callable[..., Any]:
    """Where nobody says otherwise, a class of transformers makes a cache of keys and values, which is part of its output."""

    def switched_on(_: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "use_cache": True}

    def apply(*arguments: Any) -> Any:
        adapted = apply_method(*arguments)
        adapted.register_forward_pre_hook(switched_on, with_kwargs=True)
        return adapted

    return apply


def behind_an_emptied_cache(stream: Any) -> dict[str, int]:
    """Peaks of the second step where the allocator's cache was emptied before it, in bytes.

    Args:
        stream: of the trace's worker
    """
    from fullstep.lab.allocator import RELEASE, CachingAllocator  # noqa: PLC0415

    allocator, emptied = CachingAllocator(), False
    held: dict[int, Any] = {}
    for which, size, on, segment in zip(stream.which, stream.sizes, stream.streams, stream.segment_of_event, strict=True):
        if not emptied and stream.segments[segment].step == 2:
            emptied = True
            allocator.empty_cache()
            allocator.device.peak_reserved_bytes = allocator.reserved_bytes
            allocator.peak_allocated_bytes = allocator.allocated_bytes
        if size == RELEASE:
            if (block := held.pop(which, None)) is not None:
                allocator.free(block)
        elif size and stream.tensors[which].holding != "host":
            held[which] = allocator.malloc(size, on)
    return {"allocated_bytes": allocator.peak_allocated_bytes, "reserved_bytes": allocator.peak_reserved_bytes}


def main(arguments: list[str]) -> None:
    """See the module."""
    if arguments[:1] == ["--trace"]:
        trace_again(arguments[1:])
    PAGE.write_text(page(), encoding="utf-8")
    print(re.findall(r"Mean error.*\n.*", page())[0])


if __name__ == "__main__":
    main(sys.argv[1:])
