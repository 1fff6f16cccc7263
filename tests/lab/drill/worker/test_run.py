"""Real trainings of one rank in this process: what a drill compares is the same where nothing is lost, and differs where anything is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullstep.errors import FullstepError
from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.drill.front import judge
from fullstep.lab.drill.front.judge import Truth
from fullstep.lab.drill.front.seen import Seen
from fullstep.lab.drill.leg import Leg, Run

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]
LAST = 7


@pytest.fixture(scope="module")
def going_on(ran: Any) -> Seen:
    return ran(Run("uninterrupted", LAST, digest_at=(3, LAST)))[0]


@pytest.fixture(scope="module")
def saving(ran: Any) -> Seen:
    return ran(Run("saving", LAST, save_at=(1, 3), digest_at=(LAST,)), samples_memory=True)[0]


@pytest.fixture(scope="module")
def truth(leg: Leg, going_on: Seen, saving: Seen) -> Truth:
    gate = judge.gate_of(settings_of(worksheet_from_mapping(leg.worksheet)), plain=False)
    assert judge.control_of_control(going_on, saving, 3, gate).holds is True
    return Truth(going_on, saving.digests["saved 3"], 3, True, gate)


@pytest.fixture(scope="module")
def reference(ran: Any, saving: Seen) -> Seen:
    return ran(Run("reference", LAST, resumes=True, plain=True, keeps_end=True, digest_at=(LAST,)))[0]


def test_what_loses_nothing_is_the_same_bit_for_bit(ran: Any, truth: Truth) -> None:
    checks = judge.resumption_checks(truth, ran(Run("resumed", LAST, resumes=True, digest_at=(LAST,)))[0])
    assert [check.what for check in checks if not check.holds] == []
    assert len(checks) == 6


@pytest.mark.parametrize("part", judge.PARTS)
def test_each_part_that_is_left_out_is_noticed_by_what_the_training_does(part: str, ran: Any, truth: Truth) -> None:
    seen = ran(Run(f"without {part}", LAST, resumes=True, without=(part,), digest_at=(LAST,)))[0]
    assert judge.control(part, truth, seen).caught is True
    assert judge.verdict_of(judge.resumption_checks(truth, seen), [])[0] == "failed"


def test_without_random_numbers_in_the_training_their_loss_is_missed(ran: Any, saving: Seen, reference: Seen) -> None:
    """This is what makes a drill void: a training that cannot show that something is gone."""
    blind = ran(Run("without rng", LAST, resumes=True, plain=True, without=("rng",), digest_at=(LAST,)))[0]
    digests = {**blind.digests, str(LAST): {**reference.digests[str(LAST)]}}
    truth = Truth(reference, saving.digests["saved 3"], 3, True, judge.Gate("float32"))
    found = judge.control("rng", truth, Seen(blind.name, blind.steps, digests, blind.ranks))
    assert found.caught is False
    assert judge.verdict_of([], [found])[0] == "void"


FAULTS: dict[str, dict[str, Any]] = {
    "rounded": {"rounds_state": True}, "no scheduler": {"without": ("scheduler",)}, "no moments": {"without": ("moments",)},
    "no data position": {"without": ("loader",)},
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_gate_catches_the_mildest_faults_by_the_losses_alone(fault: str, ran: Any, reference: Seen) -> None:
    seen = ran(Run("faulty", LAST, resumes=True, plain=True, **FAULTS[fault]))[0]
    assert judge.loss_difference(reference, seen) > 10 * judge.Gate("float32").limit


def test_the_gate_lets_other_sums_through(ran: Any, leg: Leg, reference: Seen) -> None:
    """Four rows at once in place of two and two: the same sums in another order."""
    batch = {**leg.worksheet["batch"], "micro_batch": 4, "accumulation": 1}
    seen = ran(Run("elsewhere", LAST, resumes=True, plain=True, compares_end=True), worksheet={**leg.worksheet, "batch": batch})[0]
    apart = judge.loss_difference(reference, seen)
    assert apart < judge.Gate("float32").limit
    differences = seen.ranks[0]["differences"]
    assert set(differences) == {"parameters", "exp_avg", "exp_avg_sq"}
    assert 0 < differences["parameters"][0] < 1e-3


def test_what_saving_takes_is_measured(saving: Seen) -> None:
    first, second = saving.ranks[0]["saves"]
    assert (first["step"], second["step"]) == (1, 3)
    assert second["published"] and second["files"] >= 2
    assert second["stall_seconds"] > 0
    memory = saving.ranks[0]["memory"]
    assert memory["most_bytes"] >= memory["before_bytes"] > 10**8


def test_rows_go_through_two_epochs_and_rates_move_at_every_step(going_on: Seen) -> None:
    rows = [row for step in going_on.steps.values() for row in step.rows]
    assert len(rows) == 4 * LAST == 2 * 14
    assert sorted(rows[:14]) == sorted(rows[14:]) == list(range(14))
    rates = [step.rates for step in going_on.steps.values()]
    assert len(set(rates)) == LAST


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_an_export_is_read_back(kind: str, ran: Any, leg: Leg, tmp_path: Path) -> None:
    from fullstep.lab.drill.worker.exported import export_and_read_back  # noqa: PLC0415

    sheet = {**leg.worksheet, "method": {"kind": kind}}
    training = ran(Run("short", 1), worksheet=sheet, folder=str(tmp_path))[1]
    found = export_and_read_back(training, tmp_path)
    assert found["differing"] == []
    assert found["tensors"] == {"full": 21, "lora": 8}[kind]
    assert found["bytes"] > 0
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_place_without_checkpoints_is_an_error_of_its_own(ran: Any, tmp_path: Path) -> None:
    with pytest.raises(FullstepError, match="there is no whole checkpoint in"):
        ran(Run("resumed", LAST, resumes=True), folder=str(tmp_path))
