"""Bills and the market on paper and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from by_hand import by_hand
from clock_by_hand import clock_by_hand
from market_by_hand import FAIR, TODAY, offer, renter

from fullstep.job import worksheet_from_mapping
from fullstep.offers.provider import Provider
from fullstep.plan.search import Plan, plan
from fullstep.report.paper import Paper
from fullstep.report.plan_json import plan_as_dict
from fullstep.report.plan_text import plan_text

OLD = TODAY - timedelta(days=190)
SHEET: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B"}, "precision": {"weights": "float32"},
    "batch": {"sequence_tokens": 4096, "global_rows": 32},
    "data": {"steps": 3600}, "goal": {"runs": 2, "idle_hours_between_runs": 5},
}  # fmt: skip
OFFERS = (
    offer("H100-SXM", 8, "16", "6", captured_on=OLD, host_memory_gib=1024.0),
    offer("H100-SXM", 4, "7", captured_on=OLD),
    offer(("H100-PCIE", "H100-SXM"), 1, "2", captured_on=OLD),
    offer("V100-SXM2-32GB", 8, "3", captured_on=OLD),
    offer("RTX4090", 1, "0.2", captured_on=OLD),
    offer("H100-SXM", 8, "11", provider="own", kind="bought", running_per_hour=Decimal(4), purchase=Decimal(150_000)),
)


def found_with(terms: Provider = FAIR, **sections: Any) -> Plan:
    sheet = worksheet_from_mapping({**SHEET, "plan": {"fixed": ["layout.offload_parameters"]}, **sections})
    return plan(sheet, by_hand(30), clock_by_hand(), renter(*OFFERS, terms=terms))


@pytest.fixture(scope="module")
def found() -> Plan:
    return found_with()


def text_of(found: Plan, width: int = 100, today: date = TODAY) -> str:
    return plan_text(found, Paper(width=width), today)


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_bill_stands_under_its_cost(found: Plan) -> None:
    text = text_of(found)
    assert found.options[0].rental is not None and found.options[0].rental.cost is not None
    for line in found.options[0].rental.cost.bill.lines:
        if line.amount is None or line.amount >= 1:
            assert line.what in text
    assert "total" in text


def test_what_is_not_known_is_never_zero() -> None:
    found = found_with(terms=Provider(name="fair", texts={}))
    lines = text_of(found).splitlines()
    egress = next(line for line in lines if "egress of the result" in line)
    assert "unknown" in egress and "$0" not in egress
    document = plan_as_dict(found, TODAY)["options"][0]
    if document["offer"]["provider"] == "own":
        document = next(option for option in plan_as_dict(found, TODAY)["options"] if option["offer"]["provider"] != "own")
    unknown = [line for line in document["run"]["bill"] if line["amount"] is None and line["what"] != "storage afterwards"]
    assert {line["what"] for line in unknown} >= {"egress of the result", "disk while it runs", "rounding to billing steps"}
    assert document["run"]["cost"]["unknown_lines"] == len(unknown)


def test_choices_reasons_and_age(found: Plan) -> None:
    text = words(text_of(found))
    assert "cheapest interruptible" in text and "on your own machine" in text and "fastest" in text
    assert "form not said: H100-PCIE or H100-SXM" in text
    assert "8 x V100-SXM2-32GB from $3.00 an hour (one offer): no arithmetic in bfloat16" in text
    assert "1 x RTX4090 from $0.20 an hour (one offer): 30.5 GiB needed" in text
    assert "190 days old, and they move by 10 to 40 % a month: `fullstep offers refresh`" in text
    assert "buying pays from 12,500 hours of work on" in text  # 150,000 / (16 - 4)


def test_fresh_prices_are_not_marked() -> None:
    text = text_of(found_with(), today=OLD)
    assert "†" not in text and "days old" not in text


@pytest.mark.parametrize("width", [80, 100, 140])
def test_nothing_is_wider_than_the_paper(found: Plan, width: int) -> None:
    assert max(map(len, text_of(found, width).splitlines())) <= width


def test_chances_are_told_where_there_is_a_limit() -> None:
    text = words(text_of(found_with(goal={"budget": "2000", "finish_within_hours": 150})))
    assert "% to end in time" in text and "% to stay within the budget" in text


def test_the_contract_of_an_option(found: Plan) -> None:
    document = plan_as_dict(found, TODAY)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    for option in document["options"]:
        cost, bill = option["run"]["cost"], option["run"]["bill"]
        assert {"currency", "low", "likely", "high"} <= set(cost) and cost["currency"] == "USD"
        assert all(isinstance(cost[end], str) for end in ("low", "likely", "high"))
        assert Decimal(cost["low"]) <= Decimal(cost["likely"]) <= Decimal(cost["high"])
        for line in bill:
            assert {"what", "quantity", "unit", "unit_price", "amount", "currency"} <= set(line)
        total = sum(Decimal(line["amount"]) for line in bill if line["amount"] is not None)
        assert abs(total - Decimal(cost["likely"])) <= Decimal("0.01")
        assert option["offer"] == option["offers"][0] and option["offer"]["cost"] == cost
        assert option["worksheet"]["machine"]["gpu"]


def test_choices_and_the_front_by_their_places(found: Plan) -> None:
    document = plan_as_dict(found, TODAY)
    options = document["options"]
    assert document["choices"][0]["labels"][0] == "cheapest" and document["choices"][0]["option"] == 0
    assert all(0 <= place < len(options) for place in document["pareto"]) and 0 in document["pareto"]
    (row,) = document["rent_or_buy"]
    assert row["pays_from_hours"] == "12500" and row["rent_per_hour"] == {"amount": "16", "currency": "USD"}


def test_every_offer_is_an_option_or_has_a_reason(found: Plan) -> None:
    document = plan_as_dict(found, TODAY)
    told = {(option["offer"]["provider"], option["offer"]["instance"]) for option in document["options"]}
    out = {name for rejection in document["rejected"] for name in rejection.get("offers", ())}
    for each in OFFERS:
        assert (each.provider, each.instance) in told or each.name in out


def test_other_currencies() -> None:
    roubles = found_with(goal={"currency": "RUB"})
    mine, theirs = (each.options[0].rental for each in (found_with(goal={"currency": "USD"}), roubles))
    assert mine is not None and theirs is not None and mine.cost is not None and theirs.cost is not None
    assert float(theirs.cost.likely / mine.cost.likely) == pytest.approx(81.2977, rel=1e-3)
    assert "₽" in text_of(roubles)
    for found in (roubles, found_with(goal={"currency": "RUB"}, data={})):  # without a length of the run, too
        assert any(key == "cost.usd_for_one_rub" for key, _, _ in found.options[0].answer.assumptions)
        assert "1 RUB = 0.0123005 USD on 2025-09-05" in words(text_of(found))


def test_an_option_that_may_never_end_has_no_high_end(found: Plan) -> None:
    spot = next(trial.rental for trial in found.options if trial.rental is not None and trial.rental.interruptible)
    assert spot.cost is not None
    endless = spot._replace(cost=spot.cost._replace(high=None))
    changed = found._replace(options=[found.options[0]._replace(rentals=(endless,))])
    assert "to no end" in text_of(changed)
    shown = plan_as_dict(changed, TODAY)["options"][0]["offer"]["cost"]
    assert shown["high"] is None


def test_a_worksheet_with_a_machine_shows_its_cost() -> None:
    named = worksheet_from_mapping({**SHEET, "machine": {"gpu": "H100-SXM", "gpus": 8}})
    found = plan(named, by_hand(30), clock_by_hand(), renter(*OFFERS, terms=replace(FAIR, notice_seconds=30.0)))
    text = words(text_of(found))
    assert "Cost" in text and "own 8xH100-SXM" in text and "fair 8xH100-SXM, interruptible" in text
    assert plan_as_dict(found, TODAY)["options"][0]["offer"]["provider"] == "own"


def test_the_json_of_what_may_never_end() -> None:
    """A save every 50 hours on machines that go every 6 hours, every 1.5 at worst: the high end is null, and the document is JSON."""
    found = found_with(checkpoint={"lose_at_most_minutes": 3000}, goal={"runs": 1})
    document = plan_as_dict(found, TODAY)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    endless = [option["offer"] for option in document["options"] if option["offer"]["cost"]["high"] is None]
    never = [out for out in document["rejected"] if "never ends" in out["detail"]]
    assert endless or never
    assert all(each["run_hours"]["high"] is None and each["cost"]["hours"]["high"] is None for each in endless)


def test_more_rows_than_stated_are_another_training() -> None:
    """One row on eight GPUs: eight rows an optimizer step, which the option says."""
    found = found_with(batch={"sequence_tokens": 4096}, data={"tokens": 1e7})
    rows = {option["worksheet"]["machine"].get("gpus", 1): option["changes_training"] for option in plan_as_dict(found, TODAY)["options"]}
    assert rows[8] is True and rows[1] is False
    assert "8 rows per optimizer step instead of 1" in words(text_of(found))
