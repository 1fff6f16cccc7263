"""Published scaling efficiencies against estimates: ``python validation/scaling.py`` writes ``scaling.md``.

Efficiency: tokens per second and GPU on many nodes, over those on few, everything else equal. Rows are ``scaling.jsonl``: the worksheet of
the larger machine, the nodes of the smaller one, both published rates, and what was assumed beside the source.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fullstep.job import complete, worksheet_from_mapping
from fullstep.ledger import StepTime
from fullstep.physics.timing.step import step_time

HERE = Path(__file__).resolve().parent
CASES = HERE / "scaling.jsonl"
PAGE = HERE / "scaling.md"
ONE_NODE_SECONDS, TWO_NODES_SECONDS = 2.46, 8.68
"""Qwen2-1.5B, full, ZeRO-3, 2 A10 a node; twice forward and backward (1.6 and 2.51 s on two nodes) are most of a step, so 2 micro-batches.
Source: github.com/deepspeedai/DeepSpeed/issues/5770, 2024-07-15, which says neither rows nor the network"""
MISSING = (
    "8B from 8 to 128 H100: what each rank steps of the optimizer shrinks, a gain of 1.4 points in the estimate; the slowest GPU and the "
    "multiprocessors that collectives take stand against it. What is left of the loss has no mechanism yet.",
    "MPT-7B on 256 and 512: the network of these nodes is not stated; congestion of switches is not in the model.",
    "ZeRO-1 over all of 1,024 ranks: part of the loss is that every tensor is broadcast by itself after the step, with the latency of all "
    "hops. A ring passes a broadcast on in pieces, which fill it one rank after the other; how far that overlaps from tensor to tensor is "
    "not known, and the estimate has the latency of the hops alone.",
)


class Case(NamedTuple):
    """Two published rates of one job on machines of different size."""

    name: str
    source: str
    date: str
    worksheet: dict[str, dict[str, Any]]
    from_nodes: int
    rates: tuple[float, float]
    """tokens per second and GPU on few and on many nodes"""
    assumed: list[str]

    @property
    def published_percent(self) -> float:
        return 100 * self.rates[1] / self.rates[0]


class Score(NamedTuple):
    """A case beside its estimate."""

    case: Case
    few: StepTime
    many: StepTime

    @property
    def likely_percent(self) -> float:
        return 100 * self.many.tokens_per_second_per_gpu.likely / self.few.tokens_per_second_per_gpu.likely

    @property
    def error_points(self) -> float:
        return self.likely_percent - self.case.published_percent


def cases() -> list[Case]:
    """All rows."""
    found = []
    for line in CASES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        few, many = row["tokens_per_second_per_gpu"]
        found.append(Case(row["id"], row["source"], row["date"], row["worksheet"], row["from_nodes"], (few, many), row["assumed"]))
    return found


def at(case: Case, nodes: int) -> StepTime:
    """The estimate of a case on so many nodes."""
    mapping = {**case.worksheet, "machine": {**case.worksheet["machine"], "nodes": nodes}}
    if nodes == 1:
        for key in ("network_gbit_s", "rdma"):
            mapping["machine"].pop(key, None)
    found = step_time(complete(worksheet_from_mapping(mapping, case.name)))
    if found is None:
        raise LookupError(f"{case.name} on {nodes} nodes: a rate is not known")
    return found


def scores() -> list[Score]:
    """Every case on its two machines."""
    return [Score(case, at(case, case.from_nodes), at(case, case.worksheet["machine"]["nodes"])) for case in cases()]


def over_sockets(tokens: float, nodes: int, network_gbit_s: float) -> float:
    """Likely seconds of a step of Qwen2-1.5B under ZeRO-3 with 2 A10 a node."""
    machine: dict[str, Any] = {"gpu": "A10", "gpus": 2, "nodes": nodes}
    if nodes > 1:
        machine |= {"network_gbit_s": network_gbit_s, "rdma": False}
    mapping = {
        "model": {"name": "Qwen/Qwen2-1.5B"}, "layout": {"strategy": "zero3"}, "machine": machine,
        "batch": {"sequence_tokens": round(tokens), "accumulation": 2},
    }  # fmt: skip
    found = step_time(complete(worksheet_from_mapping(mapping, "over sockets")))
    if found is None:
        raise LookupError("a rate is not known")
    return found.seconds.likely


def halved(is_enough: Callable[[float], bool], low: float, high: float) -> float:
    """The least value between two from which on something holds, within a thousandth."""
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def solved_for_the_network() -> str:
    """Rows as long as the step on one node says; then the line rate at which two nodes take what was measured."""
    tokens = halved(lambda rows: over_sockets(rows, 1, 0) >= ONE_NODE_SECONDS, 256, 32_768)
    line = halved(lambda gbit_s: over_sockets(tokens, 2, gbit_s) <= TWO_NODES_SECONDS, 1, 400)
    return (
        f"Qwen2-1.5B under ZeRO-3: {ONE_NODE_SECONDS} s a step on one node with 2 A10, {TWO_NODES_SECONDS} s on two, "
        f"{TWO_NODES_SECONDS / ONE_NODE_SECONDS:.1f} times slower (github.com/deepspeedai/DeepSpeed/issues/5770, 2024-07-15). Neither rows "
        f"nor network are said: with rows for which one node takes so long, the estimate of two is {TWO_NODES_SECONDS} s over sockets at "
        f"{line:.0f} Gbit/s."
    )


def _line(score: Score) -> str:
    case, machine = score.case, score.case.worksheet["machine"]
    gpus = f"{machine['gpus'] * case.from_nodes} to {machine['gpus'] * machine['nodes']} {machine['gpu']}"
    share = score.many.exposed_communication_fraction  # of an estimate it is always known
    exposed = 0.0 if share is None else share.likely
    figures = f"{case.published_percent:.1f} | {score.likely_percent:.1f} | {score.error_points:+.1f} | {100 * exposed:.1f}"
    return f"| {case.name} | {gpus} | {machine['network_gbit_s']} | {figures} |"


def page(found: list[Score]) -> str:
    """The table as Markdown."""
    mean = sum(abs(score.error_points) for score in found) / len(found)
    sources = dict.fromkeys((score.case.source, score.case.date) for score in found)
    assumed = dict.fromkeys(f"{score.case.name}: {text}" for score in found for text in score.case.assumed)
    lines = [
        "# Scaling against published runs", "",
        "Written by `python validation/scaling.py`. Efficiency: tokens per second and GPU on the larger machine over those on the smaller.",
        "Nothing is fitted per row. Last column: share of the step that communication adds on the larger machine, as estimated.", "",
        "| case | GPUs | Gbit/s per node | published (%) | likely (%) | error (points) | added (%) |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(_line(score) for score in found), "",
        f"Mean absolute error: {mean:.1f} points.", "",
        "## What is missing", "", *(f"- {text}" for text in MISSING), "",
        "## Assumed beside the source", "", *(f"- {text}" for text in assumed), "",
        "## Not scored", "", f"- {solved_for_the_network()}", "",
        "## Sources", "", *(f"- {source}, {date}" for source, date in sources), "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    PAGE.write_text(page(scores()), encoding="utf-8")


if __name__ == "__main__":
    main()
