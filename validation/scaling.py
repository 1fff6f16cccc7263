"""Published scaling efficiencies against estimates: ``python validation/scaling.py`` writes ``scaling.md``.

Efficiency: tokens per second and GPU on many nodes, over those on few, everything else equal. Rows are ``scaling.jsonl``: the worksheet of
the larger machine, the nodes of the smaller one, both published rates, and what was assumed beside the source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fullstep.job import complete, worksheet_from_mapping
from fullstep.ledger import StepTime
from fullstep.physics.timing.step import step_time

HERE = Path(__file__).resolve().parent
CASES = HERE / "scaling.jsonl"
PAGE = HERE / "scaling.md"
UNSCORED = (
    "Qwen2-1.5B under ZeRO-3: 2.46 s a step on one node with 2 A10, 8.68 s on two nodes with 4, 3.5 times slower "
    "(github.com/deepspeedai/DeepSpeed/issues/5770, 2024-07-15): rows, tokens and the network are not in what was read of it.",
)
MISSING = (
    "8B from 8 to 128 H100: what each rank steps of the optimizer shrinks, a gain of 1.4 points in the estimate; the slowest GPU and the "
    "multiprocessors that collectives take stand against it. What is left of the loss has no mechanism yet.",
    "MPT-7B on 256 and 512: the network of these nodes is not stated; congestion of switches is not in the model.",
    "ZeRO-1 over all of 1,024 ranks: part of the loss is that every tensor is broadcast by itself after the step, with the latency of all "
    "hops; there are fewer tensors than ranks, so that most ranks step on nothing, which is not in the estimate of the optimizer's step.",
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
        "## Not scored", "", *(f"- {text}" for text in UNSCORED), "",
        "## Sources", "", *(f"- {source}, {date}" for source, date in sources), "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    PAGE.write_text(page(scores()), encoding="utf-8")


if __name__ == "__main__":
    main()
