"""What has to be equal is asked for; what is left out has to be noticed, or the drill is void."""

from __future__ import annotations

import math
from typing import Any

import pytest
from drill_by_hand import SAVED, SAVED_AT, resumed, whole

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.drill.front import judge
from fullstep.lab.drill.front.judge import Gate, Truth
from fullstep.lab.drill.front.seen import Seen

GATE = Gate("float32")


def truth(exact: bool = True) -> Truth:
    return Truth(whole(), SAVED, SAVED_AT, exact, GATE)


def failed(seen: Seen, exact: bool = True) -> list[str]:
    return [check.what for check in judge.resumption_checks(truth(exact), seen) if check.holds is False]


def test_the_same_training_passes() -> None:
    assert failed(resumed()) == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (resumed(step=1), ["newest checkpoint"]),
        (resumed(loaded={"optimizer.w": "other"}), ["state after loading"]),
        (resumed(loaded={"more": "9"}), ["state after loading"]),
        (resumed(rows={5: (0, 1)}), ["rows of each step"]),
        (resumed(rates={7: (0.1,)}), ["learning rates"]),
        (resumed(loss={6: math.nextafter(6.6, 7)}), ["losses"]),
        (resumed(loss={6: math.nan}), ["losses"]),
        (resumed(end="other"), ["state after step 7"]),
    ],
    ids=["an older checkpoint", "a state", "more than was saved", "rows", "a rate", "the last bit of a loss", "no number", "the end"],
)
def test_whatever_differs_fails_by_itself(seen: Seen, expected: list[str]) -> None:
    assert failed(seen) == expected


def test_where_nothing_is_exact_losses_are_held_to_the_gate_and_the_end_is_not_compared() -> None:
    noise, fault = 6.6 * (1 + 1.6e-7), 6.6 * (1 + 2.3e-5)
    assert failed(resumed(loss={6: noise}, end="other"), exact=False) == []
    assert failed(resumed(loss={6: fault}), exact=False) == ["losses"]
    assert failed(resumed(loaded={"optimizer.w": "other"}), exact=False) == ["state after loading"]


def test_two_trainings_that_go_on_decide_whether_bits_can_be_asked_for() -> None:
    def twice(one: Seen, other: Seen) -> bool | None:
        return judge.control_of_control(one, other, SAVED_AT, GATE).holds

    apart = Seen("saving", whole().steps, {"saved 3": {**SAVED, "model.w": "other"}, "7": {"model.w": "other"}}, ())
    assert twice(whole(), whole()) is True
    assert twice(whole(), apart) is None
    assert twice(whole(), whole("moved by the save")) is False


@pytest.mark.parametrize(
    ("part", "seen"),
    [
        ("scheduler", resumed(loaded={"scheduler.all": "x"}, rates={6: (1.0,)})),
        ("rng", resumed(loaded={"rng.rank0": "x"}, loss={4: 6.5})),
        ("moments", resumed(loaded={"optimizer.state.w": "x"}, end="other")),
        ("loader", resumed(loaded={"loader.all": "x"}, rows={4: (1, 2)})),
    ],
)
def test_what_shows_is_noticed_and_what_does_not_makes_the_drill_void(part: str, seen: Seen) -> None:
    noticed = judge.control(part, truth(), seen)
    assert noticed.caught is True
    assert noticed.found.startswith("state after loading; ")
    looks_whole = Seen(seen.name, seen.steps, {**seen.digests, "loaded": SAVED}, seen.ranks)
    for blind in (resumed(), looks_whole, resumed(loaded={"rng.rank0": "x"})):
        missed = judge.control(part, truth(), blind)
        assert missed.caught is False
        verdict, reason = judge.verdict_of(judge.resumption_checks(truth(), resumed()), [noticed, missed])
        assert verdict == "void"
        assert missed.found in reason


def test_where_bits_cannot_be_asked_for_the_state_after_loading_has_to_show_it() -> None:
    within = resumed(loaded={"optimizer.state.w": "x"})
    assert judge.control("moments", truth(exact=False), within).caught is True
    assert judge.control("moments", truth(exact=True), within).caught is False
    assert judge.control("rng", truth(exact=False), within).caught is False


def test_where_the_gate_lets_a_fault_pass_losses_decide_nothing() -> None:
    seen = resumed("elsewhere", loss={5: 6.5 * (1 + 1e-7)})
    checks = judge.elsewhere_checks(truth(exact=False), seen, GATE.limit / 2)
    assert [check.what for check in checks if check.holds is None] == ["losses"]
    verdict, reason = judge.verdict_of(checks, [])
    assert (verdict, reason.startswith("bit for bit; elsewhere by the state after loading alone")) == ("passed", True)
    wrong = judge.elsewhere_checks(truth(exact=False), resumed("elsewhere", loss={5: 7.5}), GATE.limit / 2)
    assert judge.verdict_of(wrong, [])[0] == "failed"


def test_a_part_that_is_not_there_is_not_missed() -> None:
    none = judge.control("moments", truth(), None)
    assert none.caught is None
    assert judge.verdict_of([], [none])[0] == "passed"


def test_a_failure_outranks_a_void_and_names_its_first_reason() -> None:
    checks = judge.resumption_checks(truth(), resumed(end="other", rates={7: (0.1,)}))
    verdict, reason = judge.verdict_of(checks, [judge.control("rng", truth(), resumed())])
    assert verdict == "failed"
    assert reason == "resumed: learning rates: differ from step 7 on; and 1 more"


def test_elsewhere_random_numbers_are_left_out_and_nothing_else() -> None:
    def wrong(seen: Seen) -> list[str]:
        return [check.what for check in judge.elsewhere_checks(truth(exact=False), seen, 2.6e-5) if not check.holds]

    assert wrong(resumed("elsewhere", loaded={"rng.rank0": "x", "rng.rank1": "y"}, end="other", loss={5: 6.5 * (1 + 1e-7)})) == []
    assert wrong(resumed("elsewhere", loaded={"model.w": "x"})) == ["state after loading"]
    assert wrong(resumed("elsewhere", loss={5: 6.5 * (1 + 2.3e-5)})) == ["losses"]


@pytest.mark.parametrize(
    ("sheet", "plain", "dtype"),
    [
        ({"precision": {"weights": "float32", "compute": "bfloat16"}}, True, "float32"),
        ({"precision": {"weights": "float32", "compute": "bfloat16"}}, False, "bfloat16"),
        ({"precision": {"weights": "bfloat16"}}, True, "bfloat16"),
        ({"precision": {"weights": "bfloat16"}, "method": {"kind": "lora"}}, True, "float32"),
        ({"precision": {"weights": "bfloat16"}, "method": {"kind": "lora"}}, False, "bfloat16"),
    ],
)
def test_the_gate_follows_the_arithmetic(sheet: dict[str, Any], plain: bool, dtype: str) -> None:
    """Relative steps of the formats; 1.6e-7 is the most that sums in another order were seen to make, 2.3e-5 the mildest fault."""
    gate = judge.gate_of(settings_of(worksheet_from_mapping({"model": {"name": "gpt2"}, **sheet})), plain=plain)
    assert gate.dtype == dtype
    assert gate.limit == 8 * {"float32": 2**-23, "bfloat16": 2**-8}[dtype]
    assert 1.6e-7 * 5 < GATE.limit < 2.3e-5 / 20


def test_trainings_without_a_step_in_common_are_not_alike() -> None:
    early = Seen("early", {step: seen for step, seen in whole().steps.items() if step <= SAVED_AT}, {}, ())
    assert judge.loss_difference(early, resumed()) == math.inf
    assert judge.loss_difference(whole(), resumed()) == 0
