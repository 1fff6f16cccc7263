"""What hides behind compute: by hand, against a link that was limited on purpose, and against published scaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.hardware.links import spread_share
from fullstep.job import Job
from fullstep.physics.network.collective import Collective
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.exposure import PhaseSeconds, Talk, exposed_seconds, hidden_behind, slowest_of, waits
from fullstep.physics.network.fabric import Fabric, fabric_of
from fullstep.physics.network.traffic import step_collectives
from fullstep.quantities import GBIT_BYTES, Bounds

Make = Callable[..., Job]


def one_after_another(collectives: Sequence[Collective], fabric: Fabric) -> Bounds | None:
    """All communication of a step with nothing beside it [s]; None: a link is not known."""
    total = Bounds.exact(0.0)
    for one in collectives:
        seconds = collective_seconds(one, fabric)
        if seconds is None:
            return None
        total += seconds
    return total


def test_each_phase_hides_its_own() -> None:
    """Forward: 2 s of gathers behind 1 s, and the first one of 0.5 s alone. Backward: 3 s behind 4 s. After: 1 s."""
    talks = [
        Talk("forward", 0.5, False, 1.0),
        Talk("forward", 2.0, True, 1.0),
        Talk("backward", 3.0, True, 1.0),
        Talk("after_backward", 1.0, False, 1.0),
    ]
    assert waits(talks, PhaseSeconds(1.0, 4.0)) == pytest.approx(0.5 + 1.0 + 0.0 + 1.0)


def test_what_only_the_last_micro_batch_hides() -> None:
    """DDP with four micro-batches: 3 s of reduction behind a quarter of 4 s."""
    assert waits([Talk("backward", 3.0, True, 0.25)], PhaseSeconds(2.0, 4.0)) == pytest.approx(2.0)


@given(*[st.floats(0, 100)] * 3, st.floats(0.01, 1))
def test_no_more_is_hidden_than_there_is(window: float, everywhere: float, last: float, share: float) -> None:
    hidden = hidden_behind(window, everywhere, last, share)
    assert 0 <= hidden <= min(window, everywhere + last) + 1e-9


@pytest.mark.parametrize(
    ("gbit_s", "keys", "compute", "measured"),
    [
        (0.5, {"layout__reshard_after_forward": False}, 0.418, 3.43),
        (1, {"layout__reshard_after_forward": False}, 0.418, 2.00),
        (2, {"layout__reshard_after_forward": False}, 0.418, 1.27),
        (0.5, {"layout__strategy": "ddp"}, 0.367, 2.32),
        (1, {"layout__strategy": "ddp"}, 0.367, 1.17),
        (2, {"layout__strategy": "ddp"}, 0.367, 0.80),
    ],
)
def test_a_link_limited_on_purpose(small: Make, gbit_s: float, keys: dict[str, object], compute: float, measured: float) -> None:
    """Two ranks in two network namespaces, float32, a step without the other rank measured alone. gloo's FSDP2 hides nothing; its DDP some.

    The prediction is compute + all communication, within 15 %. ``link/`` measures anew.
    """
    job = small(**{"layout__strategy": "fsdp", "machine__gpus": 1, "machine__nodes": 2, **keys})
    link = Fabric("", "", None, "gloo_tcp", "gloo_tcp", gbit_s * GBIT_BYTES, 1)
    talk = one_after_another(step_collectives(job), link)
    assert talk is not None
    assert compute + talk.likely == pytest.approx(measured, rel=0.15)


def test_eight_billion_over_400_gbit_per_gpu_loses_little(eight_billion: Make) -> None:
    """torchtitan: 5,762 tokens/s per GPU on 8 H100, 5,605 on 128: 2.8 % of the longer step. 2 rows of 8,192 tokens.

    The difference of what communication adds on 128 and on 8 GPUs, beside equal compute; the bounds on 128 hold it too.
    """
    compute = 16_384 / 5_762
    shares = []
    for nodes in (1, 16):
        job = eight_billion(
            layout__strategy="fsdp", step__framework="torchtitan", precision__weights="float32", machine__gpu="H100-SXM", machine__gpus=8,
            machine__nodes=nodes, machine__network_gbit_s=3200, machine__rdma=True,
        )  # fmt: skip
        found = exposed_seconds(step_collectives(job), fabric_of(job), PhaseSeconds(compute / 3, compute * 2 / 3))
        assert found is not None
        shares.append([end / (compute + end) for end in found])
    assert shares[1][0] <= 0.028 <= shares[1][2]
    assert shares[1][1] - shares[0][1] == pytest.approx(0.028, abs=0.01)


def test_the_slowest_of_many_is_slower() -> None:
    """Exact means of the largest of n normal values: 0.564 of 2, 1.424 of 8, 2.508 of 100 (Harter 1961)."""
    for gpus, mean, within in ((1, 0, 0), (2, 0.564, 0.05), (8, 1.424, 0.01), (100, 2.508, 0.01)):
        assert slowest_of(gpus) == pytest.approx(mean, rel=within, abs=1e-9)


def test_collectives_take_multiprocessors_from_what_they_hide_behind() -> None:
    """One collective of 1 s beside 2 s of backward on one Hopper: nothing waits, 16 of 132 multiprocessors are gone for that second."""
    one = Collective("", "all_gather", 1.0, 2, 2, 1, 1, "backward", True)
    link = Fabric("", "Hopper", None, "gloo_tcp", "gloo_tcp", GBIT_BYTES, 1)
    seconds = one_after_another([one], link)
    found = exposed_seconds([one], link, PhaseSeconds(1.0, 2.0))
    assert seconds is not None and found is not None
    assert found.likely == pytest.approx(16 / 132 * seconds.likely, rel=0.01)


def test_bounds_run_from_all_overlapped_to_nothing_overlapped(eight_billion: Make) -> None:
    job = eight_billion(
        layout__strategy="fsdp", machine__gpu="H100-SXM", machine__gpus=8, machine__nodes=2, machine__network_gbit_s=100,
        machine__rdma=True,
    )  # fmt: skip
    collectives, fabric = step_collectives(job), fabric_of(job)
    talk = one_after_another(collectives, fabric)
    found = exposed_seconds(collectives, fabric, PhaseSeconds(1.0, 2.0))
    assert talk is not None and found is not None
    assert found.low == pytest.approx(talk.low - 3.0)
    assert found.low < found.likely < found.high
    assert found.high == pytest.approx(talk.high + slowest_of(16) * spread_share().high * 3.0)


def test_an_unknown_network_leaves_exposure_unknown(eight_billion: Make) -> None:
    job = eight_billion(layout__strategy="fsdp", machine__gpu="H100-SXM", machine__gpus=8, machine__nodes=2)
    assert exposed_seconds(step_collectives(job), fabric_of(job), PhaseSeconds(1, 2)) is None


@given(st.floats(0.01, 10), st.floats(0.01, 10), st.floats(1e6, 1e11), st.booleans())
def test_exposure_is_in_order(forward: float, backward: float, size: float, overlaps: bool) -> None:
    one = Collective("", "all_gather", size, 2, 2, 1, 1, "backward", overlaps)
    link = Fabric("", "", None, "tcp", "rdma", 25 * GBIT_BYTES, 1)
    found = exposed_seconds([one], link, PhaseSeconds(forward, backward))
    assert found is not None
    assert 0 <= found.low <= found.likely <= found.high
