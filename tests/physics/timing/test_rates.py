"""Achieved rates and matrix products against published measurements."""

from __future__ import annotations

import pytest

from fullstep.hardware import all_cards, find_card
from fullstep.physics.timing.flops import attended_pairs
from fullstep.physics.timing.matrix import product_seconds
from fullstep.physics.timing.rates import Rates, achieved, achieved_rows, attention_rate, card_rates


def rates(name: str) -> Rates:
    found = card_rates(find_card(name))
    assert found is not None
    return found


def sixteen_heads(tokens: int) -> float:
    """Pairs of 16,384 tokens in rows of so many, as the figures have it."""
    return 16_384 / tokens * 16 * attended_pairs(tokens)


def test_every_row_has_bounds_in_order_evidence_and_a_source() -> None:
    for (what, where), row in achieved_rows().items():
        assert 0 < row.value.low <= row.value.likely <= row.value.high, (what, where)
        assert row.evidence in ("stated", "published", "assumed", "derived", "measured"), (what, where)
        assert row.source and row.unit, (what, where)
        assert (what, "") in achieved_rows() or what.startswith(("cudnn_", "best_fp8")), what


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "share"),
    [
        (4096, 5120, 24576, 0.750), (4096, 4096, 28672, 0.737), (4096, 4096, 4096, 0.721), (4096, 8192, 10240, 0.755),
        (4096, 512, 32768, 0.618), (4096, 3072, 5120, 0.718), (33024, 2048, 7168, 0.732), (4096, 4096, 128384, 0.746),
        (4096, 14336, 4096, 0.738), (24640, 5120, 3072, 0.741),
    ],
)  # fmt: skip
def test_products_on_a100_pcie(rows: int, inner: int, columns: int, share: float) -> None:
    """Shares of 312 TFLOP/s measured per shape: MooreThreads/SimuMax, configs/system/a100_pcie.json, layout TN."""
    seconds = product_seconds(rates("A100-PCIE-80GB"), rows, columns, inner).seconds
    measured = 2 * rows * inner * columns / (share * 312e12)
    assert seconds.likely == pytest.approx(measured, rel=0.1)
    assert seconds.low <= measured <= seconds.high


@pytest.mark.parametrize(("tokens", "tera"), [(512, 191), (1024, 260), (2048, 298), (4096, 319), (8192, 333), (16384, 335)])
def test_flash_attention_2_on_h100(tokens: int, tera: float) -> None:
    """Shah et al. 2024 (FlashAttention-3), figure 5: forward, causal, head 128, H100 80GB SXM5."""
    rate = attention_rate(rates("H100-SXM"), cudnn=False, backward=False, sequence_tokens=tokens, head_dim=128, pairs=sixteen_heads(tokens))
    assert rate.likely == pytest.approx(tera * 1e12, rel=0.13 if tokens == 512 else 0.05)


@pytest.mark.parametrize(("tokens", "tera"), [(512, 315), (1024, 410), (2048, 484), (4096, 518), (8192, 529), (16384, 539)])
def test_cudnn_on_h100(tokens: int, tera: float) -> None:
    """The same figure."""
    rate = attention_rate(rates("H100-SXM"), cudnn=True, backward=False, sequence_tokens=tokens, head_dim=128, pairs=sixteen_heads(tokens))
    assert rate.likely == pytest.approx(tera * 1e12, rel=0.05)


@pytest.mark.parametrize(
    ("card", "cudnn", "backward", "measured"),
    [
        ("A100-PCIE-80GB", False, False, {8: 121, 16: 154, 32: 175, 64: 185}),
        ("A100-PCIE-80GB", False, True, {8: 119, 16: 138, 32: 151, 64: 157}),
        ("B200", True, False, {8: 349, 16: 651, 32: 823, 64: 980, 128: 1121}),
        ("B200", True, True, {8: 741, 16: 850, 32: 896, 64: 821, 128: 936}),
    ],
)
def test_few_heads_leave_multiprocessors_without_a_tile(card: str, cudnn: bool, backward: bool, measured: dict[int, float]) -> None:
    """TFLOP/s below the diagonal of 4,096 tokens by heads: SimuMax configs/system, sdp_fwd and sdp_bwd, halved (it counts the square)."""
    for heads, tera in measured.items():
        pairs = attended_pairs(4096) * heads
        rate = attention_rate(rates(card), cudnn=cudnn, backward=backward, sequence_tokens=4096, head_dim=128, pairs=pairs)
        assert heads < 16 or rate.likely == pytest.approx(tera * 1e12, rel=0.16), heads
        assert rate.low <= tera * 1e12 <= rate.high, heads


def test_a_narrow_product_is_bound_by_memory() -> None:
    """Rank 16 on 16,384 rows of 4,096: 134 MB read at 0.85 of 2,039 GB/s are 78 us, 2.1 GFLOP would be 9."""
    found = product_seconds(rates("A100-SXM4-80GB"), 16384, 16, 4096)
    assert found.bound_by == "memory"
    assert found.seconds.likely == pytest.approx((16384 * 4096 + 4096 * 16 + 16384 * 16) * 2 / (0.85 * 2.039e12), rel=1e-6)


def test_two_bytes_in_float32_are_slow_where_torch_leaves_tf32_off() -> None:
    card = rates("A100-SXM4-80GB")
    half, wide = (product_seconds(card, 8192, 8192, 8192, number=number).seconds.likely for number in ("half", "float32"))
    assert 10 < wide / half < 20


def test_8_bits_follow_16_where_nobody_measured_them() -> None:
    card = rates("GB300")
    assert card.fp8_flop_per_second is not None
    assert card.fp8_flop_per_second.likely == pytest.approx(2 * card.matrix_flop_per_second.likely)


def test_every_card_with_a_16_bit_rate_has_rates() -> None:
    for card in all_cards():
        known = bool((card.bf16_flop_per_second or card.fp16_flop_per_second) and card.memory_bytes_per_second)
        found = card_rates(card)
        assert (found is not None) == known, card.key
        if found is not None:
            assert found.matrix_flop_per_second.high <= 1.2 * found.peak_flop_per_second, card.key


def test_the_general_row_serves_what_has_none() -> None:
    assert achieved("memory", ("no card",)) == achieved("memory")
