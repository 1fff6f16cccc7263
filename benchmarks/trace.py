"""Speed and memory of the tracer, in one run: `make bench-trace`.

Each time stands beside loading torch and transformers on the same machine, which every trace begins with.

    python benchmarks/trace.py [--full-depth]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any, NamedTuple

from fullstep.job import worksheet_from_mapping
from fullstep.lab.trace.front.process import ENVIRONMENT, WORKER
from fullstep.lab.trace.front.wire import Request, encode_request
from fullstep.models import model_config

_LOADING = "import torch, peft; from transformers.models.llama import modeling_llama; from torch.distributed.fsdp import fully_shard"
_FSDP = {"strategy": "fsdp"}


class Case(NamedTuple):
    """One worksheet and what is wanted of it."""

    what: str
    wanted: str
    worksheet: dict[str, Any]


def cases() -> tuple[Case, ...]:
    """The cases of the table."""

    def sheet(name: str, nodes: int) -> dict[str, Any]:
        return {
            "model": {"name": name}, "layout": _FSDP, "batch": {"sequence_tokens": 4096}, "step": {"activation_checkpointing": "full"},
            "machine": {"gpu": "H100-SXM", "gpus": 8, "nodes": nodes},
        }  # fmt: skip

    return (
        Case("Llama-3.1-8B, FSDP on 8", "at most 10 s", sheet("meta-llama/Llama-3.1-8B", 1)),
        Case("Llama-3.1-70B, FSDP on 64", "at most 1.5 x the 8B", sheet("meta-llama/Llama-3.1-70B", 8)),
        Case("Llama-3.1-405B, FSDP on 256", "at most 1.5 x the 8B", sheet("meta-llama/Llama-3.1-405B", 32)),
        Case("Qwen3-30B-A3B (128 experts), FSDP on 8", "at most 30 s", sheet("Qwen/Qwen3-30B-A3B", 1)),
    )


def main() -> None:
    """Run everything and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full-depth", action="store_true", help="trace every block")
    options = parser.parse_args()
    environment = {**os.environ, **ENVIRONMENT}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _LOADING], check=True, env=environment)
    loading = time.perf_counter() - began
    print(f"loading torch, transformers and peft alone: {loading:.1f} s\n")
    print("| what | here | beside loading | x the first | peak memory | wanted |\n|---|---|---|---|---|---|")
    first = 0.0
    for case in cases():
        seconds, memory_mb = traced(case.worksheet, options.full_depth, environment)
        first = first or seconds
        cells = (case.what, f"{seconds:.1f} s", f"{seconds / loading:.1f} x", f"{seconds / first:.2f}", f"{memory_mb:.0f} MB", case.wanted)
        print(f"| {' | '.join(cells)} |", flush=True)


def traced(worksheet: dict[str, Any], full_depth: bool, environment: dict[str, str]) -> tuple[float, float]:
    """(seconds, peak memory in MB) of a worker from its start to its answer."""
    config, name = model_config(worksheet_from_mapping(worksheet).section("model"))
    request = encode_request(Request(worksheet=worksheet, config=config, name=name, full_depth=full_depth))
    code = f"import resource, subprocess, sys; subprocess.run({[sys.executable, *WORKER]!r}, input=sys.stdin.read(), text=True)"
    code += "; print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], input=request, text=True, capture_output=True, check=True, env=environment)
    seconds = time.perf_counter() - began
    *answers, peak = done.stdout.splitlines()
    assert "trace" in json.loads(answers[-1]), answers[-1][:500]
    return seconds, int(peak.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    main()
