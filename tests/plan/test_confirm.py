"""The best options asked again of a better witness: by hand, in GiB (see by_hand.py; an H100 has 79.1, of which 5 % stay free)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from trace_by_hand import TRACE

from fullstep.job import Worksheet
from fullstep.ledger import Answer
from fullstep.plan.confirm import MOST, SHOWN, confirmed, untraced, why_untraced
from fullstep.plan.search import Plan, plan
from fullstep.plan.trial import Size, Trial

from .by_hand import answer_of
from .clock_by_hand import clock_by_hand
from .market_by_hand import offer, renter

Say = Callable[[Trial], float | str]
"""what a trace finds, in GiB; or why there is none"""


class Witness:
    """Remembers what it was asked."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.asked: list[Trial] = []

    def __call__(self, trials: Sequence[Trial]) -> list[Answer]:
        self.asked += trials
        return [self._answer(trial) for trial in trials]

    def _answer(self, trial: Trial) -> Answer:
        said = self._say(trial)
        if isinstance(said, str):
            return replace(trial.answer, warnings=untraced(trial.answer, said))
        answer = answer_of(trial.job, said, 0, 0)
        return replace(answer, memory=replace(answer.memory, evidence="traced"), trace=TRACE)


@pytest.fixture
def found(sheet: Callable[..., Worksheet], size: Size) -> Plan:
    return plan(sheet(), size)


def test_the_first_three_are_asked_and_stay_where_they_were(found: Plan) -> None:
    witness = Witness(lambda _: 30)
    got = confirmed(found, witness)
    assert [trial.changes for trial in got.options] == [trial.changes for trial in found.options]
    assert witness.asked == list(found.options[:SHOWN])
    assert [trial.answer.trace is TRACE for trial in got.options[: SHOWN + 1]] == [True, True, True, False]
    assert got.rejected == list(found.rejected) and got.verdict.answer == found.verdict.answer
    assert got.verdict.reason == "the step needs 29.0 to 31.0 GiB of 79.1 GiB"


def test_what_does_not_fit_after_all_is_ruled_out_and_another_moves_up(found: Plan) -> None:
    first = found.options[0]
    witness = Witness(lambda trial: 100 if trial.changes == first.changes else 30)
    got = confirmed(found, witness)
    assert len(got.options) == len(found.options) - 1 and first.changes not in [trial.changes for trial in got.options]
    assert len(witness.asked) == SHOWN + 1
    assert all(trial.answer.trace for trial in got.options[:SHOWN])
    out = got.rejected[0]
    assert out.what.endswith(", traced") and out.limit == "memory" and out.needed == 100 * 2**30 and out.remedy
    assert got.rejected[1:] == list(found.rejected)


def test_what_is_tight_after_all_moves_behind_what_fits(found: Plan) -> None:
    """77 +- 1 GiB: more than 95 % of 79.1."""
    first = found.options[0]
    got = confirmed(found, Witness(lambda trial: 77 if trial.changes == first.changes else 30))
    assert got.options[-1].changes == first.changes and got.options[-1].verdict == "tight"


def test_no_more_than_six_are_asked(sheet: Callable[..., Worksheet], size: Size) -> None:
    found = plan(sheet(batch={"global_rows": 64}), size)
    assert len(found.options) > MOST
    witness = Witness(lambda _: 100)
    got = confirmed(found, witness)
    assert len(witness.asked) == MOST and len(got.options) == len(found.options) - MOST


def test_what_cannot_be_traced_stays_estimated_and_is_asked_once(found: Plan) -> None:
    witness = Witness(lambda _: "no such optimizer")
    got = confirmed(found, witness)
    assert len(witness.asked) == SHOWN
    assert [trial.answer.memory for trial in got.options] == [trial.answer.memory for trial in found.options]
    assert [why_untraced(trial) for trial in got.options[: SHOWN + 1]] == ["not traced: no such optimizer"] * 3 + [""]


def test_nothing_is_left(sheet: Callable[..., Worksheet], size: Size) -> None:
    """One option, as written, that the trace refuses."""
    found = plan(sheet(), size)
    alone = found._replace(options=found.options[:1])
    got = confirmed(alone, Witness(lambda _: 100))
    assert got.options == [] and got.verdict.answer == "nothing_fits"


def test_a_market_that_is_traced_stays_a_market(sheet: Callable[..., Worksheet], size: Size) -> None:
    """Two sellers of one machine share its trace; seller, price, choices and the front stay with the options that are left."""
    offers = (
        offer("H100-SXM", 8, "16", "6"), offer("H100-SXM", 8, "17", provider="other"), offer("H200-SXM", 8, "30"), offer("B200", 8, "60"),
        offer("A100-SXM4-80GB", 8, "70"),
    )  # fmt: skip
    wanted = sheet(machine={"gpu": None, "gpus": None}, batch={"global_rows": 32}, data={"steps": 3600})
    before = plan(wanted, size, clock_by_hand(), renter(*offers))
    assert len(before.options) == 6
    witness = Witness(lambda trial: 100 if trial.job.machine.card is not None and trial.job.machine.card.key == "H100-SXM" else 30)
    got = confirmed(before, witness)
    cards = [trial.job.machine.card.key for trial in witness.asked if trial.job.machine.card is not None]
    assert cards == ["H100-SXM", "H200-SXM", "B200", "A100-SXM4-80GB"]
    assert [trial.rental.name for trial in got.options if trial.rental is not None] == [
        "fair 8xH200-SXM", "fair 8xB200", "fair 8xA100-SXM4-80GB",
    ]  # fmt: skip
    assert "at fair 8xH200-SXM ($" in got.verdict.sentence
    places = {id(trial) for trial in got.options}
    assert got.choices and all(id(choice.trial) in places for choice in got.choices)
    assert got.not_beaten and all(id(trial) in places for trial in got.not_beaten)
    best = got.options[0].answer.timing
    assert got.options[0].rental is not None and (best is None or best.run is None or best.run.cost == got.options[0].rental.cost)


def test_what_costs_too_much_stays_so(sheet: Callable[..., Worksheet], size: Size) -> None:
    wanted = sheet(machine={"gpu": None, "gpus": None}, batch={"global_rows": 32}, data={"steps": 3600}, goal={"budget": "1"})
    before = plan(wanted, size, clock_by_hand(), renter(offer("H100-SXM", 8, "16")))
    assert before.verdict.sentence.startswith("Nothing stays within the budget of $1.00:")
    assert confirmed(before, Witness(lambda _: 30)).verdict == before.verdict
