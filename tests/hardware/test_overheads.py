"""Context, communicators and workspaces against what was published about them."""

from __future__ import annotations

import csv

import pytest

from fullstep.hardware import all_cards, device_overheads, find_card
from fullstep.hardware.catalogue import DATA
from fullstep.quantities import GIB, MIB


@pytest.mark.parametrize(
    ("name", "one_handle_bytes"),
    [
        ("A100-SXM4-80GB", 8_519_680),
        ("L4", 8_519_680),
        ("H100-SXM", 33_554_432),
        ("GH200-96GB", 33_554_432),
        ("B200", 33_554_432),
        ("MI300X", 2**27),
    ],
)
def test_cublas_workspace_is_torchs_default_for_two_handles(name: str, one_handle_bytes: int) -> None:
    """torch: :4096:2:16:8 (KiB) by default, 32 MiB on Hopper; forward and backward run in two threads with a handle each."""
    assert device_overheads(find_card(name)).cublas_workspace_bytes == 2 * one_handle_bytes


def test_context_lies_where_reports_put_it() -> None:
    for card in (*all_cards(), None):
        context = device_overheads(card).context_bytes
        assert 0.25 * GIB < context.low <= context.likely <= context.high < 0.7 * GIB


def test_communicator_is_what_nccl_users_measured() -> None:
    """544 MB for two, 688 MB for four A100 (NVIDIA/nccl#964)."""
    assert device_overheads(find_card("A100-SXM4-80GB")).communicator_bytes[:2] == (544 * MIB, 688 * MIB)


def test_every_row_has_evidence_and_a_source() -> None:
    with (DATA / "device_overheads.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    architectures = {card.architecture for card in all_cards()}
    for row in rows:
        assert row["evidence"] and row["source"], row
        assert not row["architecture"] or any(name.startswith(row["architecture"]) for name in architectures), row
