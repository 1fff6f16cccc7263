"""A link on paper and as JSON: times, bandwidths, what is missing, and what was assumed beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fullstep.ledger.link import AssumedLink, LinkFit, LinkSample, MeasuredLink
from fullstep.quantities import Bounds
from fullstep.report.json import dump
from fullstep.report.link_json import link_as_dict
from fullstep.report.link_text import link_text
from fullstep.report.paper import Paper

SAMPLES = (
    LinkSample("all_reduce", 4096, 4, (40e-6, 50e-6, 60e-6)),
    LinkSample("all_reduce", 2**30, 4, (8e-3, 8.1e-3, 8.2e-3)),
    LinkSample("send", 4096, 4, (20e-6, 20e-6, 20e-6)),
)
MEASURED = MeasuredLink(
    made="2026-01-01T00:00:00+00:00", device="NVIDIA H100 80GB HBM3", backend="nccl", ranks=4, processors=96, iterations=3, warm_up=5,
    samples=SAMPLES, missing={"reduce_scatter": "Backend nccl does not support reduce_scatter"}, versions={"torch": "2.13", "nccl": "2.29"},
    settings={"NCCL_ALGO": "Ring"}, notes=("one machine", "short messages"), seconds=12.0,
)  # fmt: skip
ASSUMED = (
    AssumedLink(
        "all_reduce", Bounds(9e-6, 10.2e-6, 13e-6), ((4096, Bounds(9e-6, 10.3e-6, 13e-6)), (2**30, Bounds(4e-3, 4.4e-3, 5e-3))),
        LinkFit(10.2e-6, 363e9, 0.01),
    ),
)  # fmt: skip


def lines(**changed: Any) -> list[str]:
    text = link_text(replace(MEASURED, **changed), ASSUMED, "4 x H100-SXM by nvswitch", Paper())
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_table_is_by_size() -> None:
    """2^30 bytes in 8.1 ms are 132.56 GB/s; 2 * 3/4 of that are 198.8."""
    found = lines()
    assert found[0] == "4 ranks on NVIDIA H100 80GB HBM3, nccl: 3 calls of each size after 5 untimed ones; 12 s in all"
    assert "all_reduce 4 KiB 50.0 us 45.0-55.0 us 0.082 GB/s 0.123 GB/s" in found
    assert "1 GiB 8.10 ms 8.05-8.15 ms 133 GB/s 199 GB/s" in found
    assert "reduce_scatter nccl does not have it: Backend nccl does not support reduce_scatter" in found


def test_the_terms_stand_beside_what_is_assumed() -> None:
    """Two sizes: the line goes through both medians. (8.1 ms - 50 us) for 1.5 * (2^30 - 2^12) bytes are 200 GB/s."""
    found = lines()
    assert "all_reduce 50.0 us 10.2 (9.00-13.0) us 200 GB/s 363 GB/s 0 %" in found
    assert "send - - - - -" in found
    assert "Assumed of 4 x H100-SXM by nvswitch" in found
    assert found[-1] == "Evidence measured 2026-01-01T00:00:00+00:00 · torch 2.13 · nccl 2.29 · NCCL_ALGO=Ring"


def test_processors_are_counted_in_cores() -> None:
    assert lines(device="cpu", backend="gloo", iterations=1)[0].startswith("4 ranks on 96 cores, gloo: 1 call of each size")


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_is_wider_than_its_paper(width: int) -> None:
    text = link_text(replace(MEASURED, missing={"all_gather": "no " * 60}), ASSUMED, "x " * 100, Paper(width))
    assert max(map(len, text.splitlines())) <= width


def test_the_record_keeps_every_call() -> None:
    found = link_as_dict(MEASURED, ASSUMED, "4 x H100-SXM by nvswitch", ["fullstep", "link"])
    again = json.loads(dump(found))
    assert again == found
    assert (found["kind"], found["schema"], found["evidence"], found["made"]) == ("fullstep link", 1, "measured", MEASURED.made)
    assert found["command"] == ["fullstep", "link"]
    assert found["environment"]["settings"] == {"NCCL_ALGO": "Ring"}
    assert found["samples"][0] == {"collective": "all_reduce", "size_bytes": 4096, "seconds": [40e-6, 50e-6, 60e-6]}
    reduce, gather, scatter, send = found["summary"]
    assert reduce["sizes"][1]["bus_bytes_per_second"] == pytest.approx(1.5 * 2**30 / 8.1e-3)
    assert reduce["sizes"][0]["least_seconds"] == 40e-6
    assert reduce["fit"]["bytes_per_second"] == pytest.approx(1.5 * (2**30 - 4096) / 8.05e-3, rel=1e-6)
    assert reduce["assumed"]["fit"]["bytes_per_second"] == 363e9
    assert reduce["assumed"]["sizes"][1] == {"size_bytes": 2**30, "seconds": {"low": 4e-3, "likely": 4.4e-3, "high": 5e-3}}
    assert (gather["sizes"], gather["fit"], gather["missing"]) == ([], None, None)
    assert scatter["missing"].startswith("Backend nccl")
    assert send["assumed"] is None and send["fit"] is None
