"""Speed and memory of fullstep itself, in one run: `make bench`.

Times depend on the machine, so each stands beside something on the same machine that everybody knows: an empty Python, or reading and
writing the same JSON.

    python benchmarks/run.py [--lines 2000] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "llama-8b-full.toml"
FULLSTEP = Path(sys.executable).parent / "fullstep"


class Result(NamedTuple):
    """One line of the table."""

    what: str
    figure: str
    beside: str
    wanted: str


def main() -> None:
    """Run everything and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2000, help="worksheets for the throughput")
    parser.add_argument("--repeats", type=int, default=7, help="runs of which the median counts")
    options = parser.parse_args()
    searches = [plan_search(options.repeats), market_search(options.repeats), market_search(options.repeats, nodes=4)]
    results = [cold_start(options.repeats), *searches, *throughput(options.lines)]
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, median of {options.repeats}\n")
    print("| what | here | beside it | wanted |\n|---|---|---|---|")
    for result in results:
        print("| " + " | ".join(result) + " |")


def cold_start(repeats: int) -> Result:
    """A whole process that answers one worksheet, against a Python that does nothing."""
    empty = seconds_of([sys.executable, "-c", "pass"], repeats)
    own = seconds_of([str(FULLSTEP), "estimate", str(EXAMPLE), "--json"], repeats)
    return Result(
        "cold start of `fullstep estimate`", f"{own:.3f} s", f"{own / empty:.1f} x an empty Python ({empty:.3f} s)", "at most 0.35 s"
    )


def plan_search(repeats: int) -> Result:
    """The whole search for one worksheet, with the start of the process."""
    own = seconds_of([str(FULLSTEP), "plan", str(EXAMPLE), "--json"], repeats)
    estimate = seconds_of([str(FULLSTEP), "estimate", str(EXAMPLE), "--json"], repeats)
    return Result("`fullstep plan`, one server", f"{own:.2f} s", f"{own / estimate:.1f} x one estimate", "well under 1 s")


def market_search(repeats: int, nodes: int = 1) -> Result:
    """The whole market for one worksheet that names no machine, every offer with its bill, with the start of the process."""
    batch = ["--sequence-tokens", "4096", "--accumulation", "16", "--data-tokens", "2e7"]
    sheet = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora", *batch]
    own = seconds_of([str(FULLSTEP), "plan", *sheet, "--max-nodes", str(nodes), "--json"], repeats)
    estimate = seconds_of([str(FULLSTEP), "estimate", *sheet, "--json"], repeats)
    wanted = "under 2 s" if nodes == 1 else ""
    return Result(f"`fullstep plan`, the market, up to {nodes} nodes", f"{own:.2f} s", f"{own / estimate:.1f} x one estimate", wanted)


def throughput(lines: int) -> tuple[Result, Result]:
    """Many different worksheets in one process, and the memory that it took, against json alone."""
    text = "".join(json.dumps(worksheet) + "\n" for worksheet in worksheets(lines))
    warm_up = json.dumps(next(iter(worksheets(1)))) + "\n"
    command = [str(FULLSTEP), "estimate", "--jsonl"]
    start = seconds_of_input(command, warm_up)
    elapsed = seconds_of_input(command, text) - start
    before = time.perf_counter()
    for line in text.splitlines():
        json.dumps(json.loads(line))
    plain = time.perf_counter() - before
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    return (
        Result(
            "`fullstep estimate --jsonl`", f"{lines / elapsed:,.0f} worksheets/s", f"{elapsed / plain:.0f} x json alone", "at least 1,000/s"
        ),
        Result("its peak memory", f"{peak_mb:.0f} MB", "", "under 200 MB"),
    )


def worksheets(count: int) -> list[dict[str, object]]:
    """Worksheets that differ in length, rows, rank and card, as a sweep would."""
    base = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    cards = ("H100-SXM", "A100-SXM4-80GB", "H200-SXM", "L40S")
    return [
        base
        | {
            "method": {"kind": "lora", "rank": 8 * (1 + number % 16)} if number % 2 else {"kind": "full"},
            "batch": {"sequence_tokens": 256 * (1 + number % 37), "micro_batch": 1 + number % 5},
            "machine": {"gpu": cards[number % len(cards)], "gpus": 8},
        }
        for number in range(count)
    ]


def seconds_of(command: list[str], repeats: int) -> float:
    """Median wall time of a command; an exit code of 3 (does not fit) is an answer too."""
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        times.append(time.perf_counter() - before)
        if done.returncode not in (0, 3):
            sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return statistics.median(times)


def seconds_of_input(command: list[str], text: str) -> float:
    """Wall time of a command that reads all its work from standard input."""
    before = time.perf_counter()
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    elapsed = time.perf_counter() - before
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != text.count("\n") or any("error" in answer for answer in answers):
        sys.exit("not every worksheet was answered")
    return elapsed


if __name__ == "__main__":
    main()
