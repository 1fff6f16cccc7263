"""The market instead of a machine: what is found, at what cost, in which order, and why the rest is out."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.api.answer import size
from fullstep.api.timing import with_timing
from fullstep.job import Worksheet, complete, worksheet_from_mapping
from fullstep.offers.offer import Offer
from fullstep.plan.renting import Wishes
from fullstep.plan.search import Plan, plan

from .by_hand import by_hand
from .clock_by_hand import clock_by_hand
from .conftest import CONFIG
from .market_by_hand import offer, renter

Sheet = Callable[..., Worksheet]
NO_GPU = {"gpu": None, "gpus": None}
QUICK = {"storage_write_gb_s": 1e5, "storage_read_gb_s": 1e5}
"""saves and loads take no time"""


def planned(sheet: Sheet, *offers: Offer, wishes: Wishes | None = None, state_gib: float = 30, **sections: Any) -> Plan:
    """30 GiB of state fit one card of 48; eight GPUs take 100 h, one takes 800."""
    wanted: dict[str, Any] = {"batch": {"global_rows": 32}, "data": {"steps": 3600}}
    wanted["plan"] = {"fixed": ["layout.offload_parameters", "layout.offload_optimizer"]}
    wanted |= {**sections, "machine": {**NO_GPU, **QUICK, **sections.get("machine", {})}}
    return plan(sheet(**wanted), by_hand(state_gib), clock_by_hand(), renter(*offers, wishes=wishes))


def names(found: Plan) -> list[str]:
    return [trial.rental.name for trial in found.options if trial.rental is not None]


def test_every_machine_on_the_market_with_its_bill(sheet: Sheet) -> None:
    """100 h at 16, 200 h at 7: 1,600 and 1,400 and a quarter of an hour of set-up; interruptible at 6: between 600 and a third more."""
    found = planned(sheet, offer("H100-SXM", 8, "16", "6"), offer("H100-SXM", 4, "7"))
    assert names(found) == ["fair 8xH100-SXM, interruptible", "fair 4xH100-SXM", "fair 8xH100-SXM"]
    costs = [trial.rental.cost for trial in found.options if trial.rental is not None]
    spot, four, eight = (cost.likely if cost is not None else Decimal(0) for cost in costs)
    assert 600 < spot < 800
    assert 1400 < four < 1404 and 1600 < eight < 1604
    for trial, cost in zip(found.options, costs, strict=True):
        assert cost is not None and trial.answer.timing is not None and trial.answer.timing.run is not None
        assert trial.answer.timing.run.cost == cost
        assert cost.low <= cost.likely <= (cost.high or cost.likely)
        assert cost.likely == round(cost.bill.total, 2)


def test_an_option_is_a_worksheet_that_can_be_run(sheet: Sheet) -> None:
    found = planned(sheet, offer("H100-SXM", 8, "16", host_memory_gib=1024.0, vcpus=96.0))
    job = complete(found.options[0].worksheet)
    assert job.machine.card is not None and job.machine.card.key == "H100-SXM"
    assert (job.machine.gpus, job.machine.nodes, job.machine.host_memory_bytes, job.machine.cpu_cores) == (8, 1, 1024 * 2**30, 96)
    assert job.batch.micro_batch * job.batch.accumulation * job.layout.data_parallel == 32


def test_the_verdict_names_the_seller_and_the_price(sheet: Sheet) -> None:
    sentence = planned(sheet, offer("H100-SXM", 4, "7")).verdict.sentence
    assert sentence.startswith("One server is enough: 4 x H100-SXM")
    assert "at fair 4xH100-SXM ($1,401 in all, $1,260 to $1,544)" in sentence


def test_without_a_data_set_machines_are_ranked_by_the_price_of_a_token(sheet: Sheet) -> None:
    """Half the price for half the speed is the same; a tenth less is less."""
    found = planned(sheet, offer("H100-SXM", 8, "16"), offer("H100-SXM", 4, "7.2"), data={})
    assert names(found) == ["fair 4xH100-SXM", "fair 8xH100-SXM"]
    prices = [trial.rental.per_million_tokens for trial in found.options if trial.rental is not None]
    assert all(trial.rental is not None and trial.rental.cost is None for trial in found.options)
    assert prices[0] is not None and prices[1] is not None and float(prices[0] / prices[1]) == pytest.approx(0.9)


def test_a_card_without_the_number_format_is_out_with_its_reason(sheet: Sheet) -> None:
    found = planned(sheet, offer("V100-SXM2-32GB", 8, "4"), offer("H100-SXM", 8, "16"))
    out = next(out for out in found.rejected if out.limit == "support")
    assert out.what == "8 x V100-SXM2-32GB" and "bfloat16" in out.detail and len(out.offers) == 1
    assert out.per_hour == 4
    half = planned(sheet, offer("V100-SXM2-32GB", 8, "4"), precision={"compute": "float16"})
    assert names(half) == ["fair 8xV100-SXM2-32GB"]


@pytest.mark.parametrize(
    ("section", "words"), [({"step": {"attention": "flash"}}, "flash attention"), ({"precision": {"compute": "fp8"}}, "fp8")]
)
def test_kernels_that_a_card_lacks_rule_it_out(sheet: Sheet, section: dict[str, Any], words: str) -> None:
    card = "V100-SXM2-32GB" if words == "flash attention" else "A100-SXM4-80GB"
    precision = {"compute": "float16"} if words == "flash attention" else section.get("precision", {})
    found = planned(sheet, offer(card, 8, "4"), **{**section, "precision": {"weights": "bfloat16", **precision}})
    assert not found.options
    assert any(out.limit == "support" and words in out.detail for out in found.rejected)


def test_what_is_too_small_says_how_much(sheet: Sheet) -> None:
    found = planned(sheet, offer("RTX4090", 1, "0.4"), offer("H100-SXM", 1, "2"), batch={"global_rows": 1})
    out = next(out for out in found.rejected if out.limit == "memory")
    assert out.what == "1 x RTX4090" and out.needed is not None and out.available is not None and out.needed > out.available
    assert names(found) == ["fair 1xH100-SXM"]


def test_a_host_that_is_too_small_is_out(sheet: Sheet) -> None:
    """10 GiB are needed for loading."""
    found = planned(sheet, offer("H100-SXM", 8, "8", host_memory_gib=8.0), offer("H100-SXM", 8, "16", host_memory_gib=64.0))
    out = next(out for out in found.rejected if out.limit == "host_memory")
    assert (out.needed, out.available, len(out.offers)) == (10 * 2**30, 8 * 2**30, 1)
    assert found.options[0].rental is not None and found.options[0].rental.per_hour == 16


def test_host_memory_that_is_stated_gives_way_to_the_offers(sheet: Sheet) -> None:
    """Without a machine it belongs to none."""
    found = planned(sheet, offer("H100-SXM", 8, "16", host_memory_gib=64.0), machine={"host_memory_gib": 1})
    (best,) = found.options
    assert best.job.machine.host_memory_bytes == 64 * 2**30 and best.worksheet.stated("machine.host_memory_gib") == 64


def test_several_machines_need_a_network_that_is_known(sheet: Sheet) -> None:
    silent, joined = offer("H100-SXM", 8, "10", instance="silent"), offer("H100-SXM", 8, "16", instance="joined", network_gbit_s=1000.0)
    found = planned(sheet, silent, joined, goal={"max_nodes": 2})
    assert "2 x fair joined" in names(found) and "2 x fair silent" not in names(found)
    out = next(out for out in found.rejected if out.limit == "network")
    assert [each.instance for each in out.offers] == ["silent"] and "--any-fabric" in out.detail
    forced = planned(sheet, silent, goal={"max_nodes": 2}, machine={"network_gbit_s": 100}, wishes=Wishes(any_fabric=True))
    assert "2 x fair silent" in names(forced)


def test_one_machine_alone_where_nothing_allows_more(sheet: Sheet) -> None:
    found = planned(sheet, offer("H100-SXM", 8, "16", network_gbit_s=1000.0))
    assert {trial.job.machine.nodes for trial in found.options} == {1}


def test_more_machines_than_there_are(sheet: Sheet) -> None:
    found = planned(sheet, offer("H100-SXM", 8, "16", network_gbit_s=1000.0, machines=1), goal={"max_nodes": 2})
    assert names(found) == ["fair 8xH100-SXM"]
    assert [out.limit for out in found.rejected] == ["availability"]


def test_a_deadline_counts_from_the_order(sheet: Sheet) -> None:
    """100 h of training and 10 minutes of set-up are more than 100.1 h; interruptible machines end later still."""
    near = planned(sheet, offer("H100-SXM", 8, "16"), goal={"finish_within_hours": 100.1}).options[0]
    assert near.ending is not None and near.ending.state == "perhaps"
    late = planned(sheet, offer("H100-SXM", 8, "16", "6"), goal={"finish_within_hours": 80})
    assert not late.options and late.verdict.answer == "nothing_fits"
    assert "Nothing ends in time" in late.verdict.sentence
    assert {out.limit for out in late.rejected} == {"time"}
    wide = planned(sheet, offer("H100-SXM", 8, "16", "6"), goal={"finish_within_hours": 115})
    assert names(wide)[0] == "fair 8xH100-SXM"  # the cheaper one is likely to be late
    sure = wide.options[0].rental
    assert sure is not None and sure.in_time is not None and 0.9 < sure.in_time < 1


def test_a_budget_is_a_limit_with_a_chance(sheet: Sheet) -> None:
    found = planned(sheet, offer("H100-SXM", 8, "16"), goal={"budget": "1000"})
    assert not found.options and found.verdict.answer == "nothing_fits"
    assert found.verdict.sentence.startswith("Nothing stays within the budget of $1,000: the cheapest is 8 x H100-SXM")
    assert next(out for out in found.rejected if out.limit == "budget").needed == pytest.approx(1602, abs=2)
    tight = planned(sheet, offer("H100-SXM", 8, "16"), goal={"budget": "1603"}).options[0].rental
    assert tight is not None and tight.in_budget is not None and 0.4 < tight.in_budget < 0.6  # the likely cost is its median


def test_a_form_that_is_not_said_gives_a_range() -> None:
    """The bounds reach from the fastest form to the slowest: by the real formulas, as the clock made by hand knows no cards."""
    sheet = worksheet_from_mapping({
        "model": {"name": "meta-llama/Llama-3.1-8B", "config": CONFIG}, "method": {"kind": "lora"},
        "batch": {"sequence_tokens": 4096, "global_rows": 8}, "data": {"tokens": 1e8},
    })  # fmt: skip
    costs = {}
    for cards in (("H100-PCIE",), ("H100-SXM",), ("H100-PCIE", "H100-SXM")):
        best = plan(sheet, size, with_timing, renter(offer(cards, 1, "2"))).options[0].rental
        assert best is not None and best.cost is not None
        costs[cards] = best.cost
    both, pcie, sxm = costs["H100-PCIE", "H100-SXM"], costs[("H100-PCIE",)], costs[("H100-SXM",)]
    assert both.low == sxm.low < pcie.low
    assert both.high == pcie.high and both.likely == pcie.likely


def test_nothing_on_the_market_fits(sheet: Sheet) -> None:
    found = planned(sheet, offer("RTX4090", 1, "0.4"), state_gib=10_000)
    assert found.verdict.answer == "nothing_fits"
    assert "any machine on the market" in found.verdict.sentence


def test_an_empty_market(sheet: Sheet) -> None:
    found = planned(sheet)
    assert not found.options and found.verdict.answer == "nothing_fits"


def test_the_machine_that_is_named_is_priced_too(sheet: Sheet) -> None:
    offers = (offer("H100-SXM", 8, "16", "6"), offer("H100-SXM", 8, "20"), offer("H100-SXM", 4, "1"))
    found = plan(sheet(data={"steps": 3600}), by_hand(30), clock_by_hand(), renter(*offers))
    best = found.options[0]
    assert [(rental.interruptible, rental.per_hour) for rental in best.rentals] == [(False, 16), (True, 6)]
    assert best.answer.timing is not None and best.answer.timing.run is not None and best.answer.timing.run.cost == best.rentals[0].cost


def test_answers_by_what_one_chooses_for(sheet: Sheet) -> None:
    own = offer("A100-SXM4-80GB", 8, "9", kind="owned", provider="own", running_per_hour=Decimal(9))
    found = planned(sheet, offer("H100-SXM", 8, "30"), offer("H100-SXM", 4, "7", "2"), own)
    by_label = {label: choice.trial.rental.name for choice in found.choices if choice.trial.rental is not None for label in choice.labels}
    assert by_label["cheapest"] == by_label["cheapest interruptible"] == "fair 4xH100-SXM, interruptible"
    assert by_label["cheapest on demand"] == by_label["on your own machine"] == "own 8xA100-SXM4-80GB"
    assert by_label["fastest"] == "own 8xA100-SXM4-80GB"  # as fast as eight others, and cheaper
    assert len({id(choice.trial) for choice in found.choices}) == len(found.choices)


def test_whether_to_buy(sheet: Sheet) -> None:
    """200,000 for what rents at 25 and costs 5 to run: 10,000 h."""
    bought = offer("H100-SXM", 8, "15", kind="bought", provider="own", running_per_hour=Decimal(5), purchase=Decimal(200_000))
    found = planned(sheet, bought, offer("H100-SXM", 8, "25"), offer("H100-SXM", 4, "1"))
    (row,) = found.rent_or_buy
    assert (row.rented, row.rent_per_hour, row.pays_from_hours) == ("fair 8xH100-SXM", 25, 10_000)


PRICES = st.decimals(min_value=Decimal("0.05"), max_value=Decimal(99), places=2)


@settings(max_examples=25, deadline=None)
@given(prices=st.lists(PRICES, min_size=2, max_size=6))
def test_a_cheaper_identical_offer_never_comes_behind(prices: list[Decimal]) -> None:
    """Equal machines in several regions: the cheapest of them is the one that is named, and dearer ones are counted."""
    sheet = worksheet_from_mapping({
        "model": {"name": "meta-llama/Llama-3.1-8B", "config": CONFIG}, "batch": {"sequence_tokens": 4096, "global_rows": 32},
        "data": {"steps": 3600},
    })  # fmt: skip
    offers = [offer("H100-SXM", 8, str(price), region=f"r{number}") for number, price in enumerate(prices)]
    found = plan(sheet, by_hand(30), clock_by_hand(), renter(*offers))
    (best,) = (trial.rental for trial in found.options)
    assert best is not None and best.per_hour == min(prices) and best.elsewhere == len(prices) - 1


@settings(max_examples=25, deadline=None)
@given(machines=st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), PRICES, st.none() | PRICES), min_size=1, max_size=6))
def test_the_order_is_by_cost_and_the_front_is_not_beaten(machines: list[tuple[int, Decimal, Decimal | None]]) -> None:
    sheet = worksheet_from_mapping({
        "model": {"name": "meta-llama/Llama-3.1-8B", "config": CONFIG}, "batch": {"sequence_tokens": 4096, "global_rows": 32},
        "data": {"steps": 36},
    })  # fmt: skip
    offers = [
        offer("H100-SXM", gpus, str(price), None if spot is None else str(spot), instance=f"m{number}", host_memory_gib=64.0 + number)
        for number, (gpus, price, spot) in enumerate(machines)
    ]
    found = plan(sheet, by_hand(30), clock_by_hand(), renter(*offers))
    costs = [trial.rental.cost.likely for trial in found.options if trial.rental is not None and trial.rental.cost is not None]
    assert costs == sorted(costs) and len(costs) == len(found.options)
    front = {id(trial) for trial in found.not_beaten}
    assert id(found.options[0]) in front
    for trial in found.options:
        beaten = any(_beats(other, trial) for other in found.options)
        assert (id(trial) in front) is not beaten


def _beats(one: Any, other: Any) -> bool:
    mine, its = ((each.rental.cost.likely, each.rental.run_hours.likely, each.rental.cost.interruptions) for each in (one, other))
    return mine != its and all(left <= right for left, right in zip(mine, its, strict=True))


def test_a_limit_leaves_out_what_cannot_be_judged(sheet: Sheet) -> None:
    """By the real formulas: nobody published the speed of an RTX PRO 4500."""
    wanted = worksheet_from_mapping({
        "model": {"name": "meta-llama/Llama-3.2-1B"}, "method": {"kind": "lora"}, "batch": {"sequence_tokens": 4096, "global_rows": 8},
        "data": {"tokens": 1e8}, "goal": {"budget": "0.01"},
    })  # fmt: skip
    unknown, dear = offer("RTXPRO4500", 1, "0.01"), offer("H100-SXM", 1, "2")
    found = plan(wanted, size, with_timing, renter(unknown, dear))
    assert not found.options and found.verdict.answer == "nothing_fits"
    assert any(out.limit == "budget" and "16-bit rate" in out.detail for out in found.rejected)
    alone = plan(wanted, size, with_timing, renter(unknown))
    assert alone.verdict.answer == "undecided" and "budget" in alone.verdict.sentence


def test_a_named_machine_over_the_budget(sheet: Sheet) -> None:
    named = sheet(batch={"global_rows": 32}, data={"steps": 3600}, goal={"budget": "1000"})
    found = plan(named, by_hand(30), clock_by_hand(), renter(offer("H100-SXM", 8, "16")))
    assert found.verdict.answer == "nothing_fits" and "Nothing stays within the budget of $1,000" in found.verdict.sentence
    near = sheet(batch={"global_rows": 32}, data={"steps": 3600}, goal={"budget": "1550"})
    tight = plan(near, by_hand(30), clock_by_hand(), renter(offer("H100-SXM", 8, "16")))
    assert "is more than the budget of $1,550" in tight.verdict.sentence
    nobodys = plan(near, by_hand(30), clock_by_hand(), renter(offer("H200-SXM", 8, "16")))
    assert nobodys.verdict.answer == "undecided" and "budget of $1,550 is open: no price is known" in nobodys.verdict.sentence


def test_in_time_too_dear_and_cheap_too_late(sheet: Sheet) -> None:
    """Eight take 100 h for 1,600 dollars; one takes 800 h for 80."""
    goal = {"finish_within_hours": 120, "budget": "1000"}
    found = planned(sheet, offer("H100-SXM", 8, "16"), offer("H100-SXM", 1, "0.1"), goal=goal)
    assert found.verdict.answer == "nothing_fits" and not found.options
    assert found.verdict.sentence.startswith("Nothing that ends in time stays within the budget of $1,000: the cheapest is 8 x H100-SXM")
    assert found.shown.job.machine.gpus == 8 and {out.limit for out in found.rejected} == {"time", "budget"}


def test_a_part_of_the_market(sheet: Sheet) -> None:
    offers = (offer("H100-SXM", 8, "16", "6"), offer("H100-SXM", 8, "20", provider="other", region="eu-west1"))
    assert names(planned(sheet, *offers, wishes=Wishes(providers=("other",)))) == ["other eu-west1 8xH100-SXM"]
    assert names(planned(sheet, *offers, wishes=Wishes(region="EU"))) == ["other eu-west1 8xH100-SXM"]
    assert all("interruptible" not in name for name in names(planned(sheet, *offers, wishes=Wishes(on_demand_only=True))))


def test_every_seller_is_an_option(sheet: Sheet) -> None:
    offers = (offer("H100-SXM", 8, "16"), offer("H100-SXM", 8, "20", provider="other"), offer("H100-SXM", 8, "18", region="far"))
    found = planned(sheet, *offers)
    assert names(found) == ["fair 8xH100-SXM", "other 8xH100-SXM"]
    assert found.options[0].rental is not None and found.options[0].rental.elsewhere == 1


def test_a_rejection_counts_the_offers_that_are_out(sheet: Sheet) -> None:
    """Interruptible it is within the budget, on demand it is not."""
    found = planned(sheet, offer("H100-SXM", 8, "16", "6"), goal={"budget": "900"})
    assert names(found) == ["fair 8xH100-SXM, interruptible"]
    (out,) = (out for out in found.rejected if out.limit == "budget")
    assert out.what == "8 x H100-SXM" and out.candidates == 1


def test_several_machines_with_a_stated_mean(sheet: Sheet) -> None:
    """Each of two is taken every 12 h: all at once at the low end of cost, every 6 h otherwise."""
    joined = offer("H100-SXM", 8, None, "6", network_gbit_s=1000.0)
    market = renter(joined, wishes=Wishes(interrupted_every_hours=12, wait_hours=0))
    job = complete(sheet(machine={"nodes": 2}))
    assert [market.rent(job, joined, True, end).interrupted_every_seconds for end in range(3)] == [12 * 3600, 6 * 3600, 6 * 3600]


def test_chances_of_several_runs_are_those_of_their_sum(sheet: Sheet) -> None:
    """The sum of ten runs spreads less than one of them; what is not sure of a step is the same for all."""
    chances = []
    for runs in (1, 10):
        free = planned(sheet, offer("H100-SXM", 8, None, "6"), goal={"runs": runs}, wishes=Wishes(interrupted_every_hours=6))
        cost = free.options[0].cost
        assert cost is not None
        budget = str(round(cost.likely * Decimal("1.03"), 2))
        goal = {"runs": runs, "budget": budget}
        best = planned(sheet, offer("H100-SXM", 8, None, "6"), goal=goal, wishes=Wishes(interrupted_every_hours=6)).options[0].rental
        assert best is not None and best.in_budget is not None
        chances.append(best.in_budget)
    assert 0.5 < chances[0] < 1 and chances[1] >= chances[0] - 0.02


def test_keys_that_are_fixed_stay(sheet: Sheet) -> None:
    written = {"step": {"activation_checkpointing": "selective"}, "layout": {"strategy": "fsdp"}}
    found = planned(sheet, offer("H100-SXM", 8, "16"), **written, plan={"fixed": ["step.activation_checkpointing", "layout.strategy"]})
    (best,) = found.options
    assert best.job.step.activation_checkpointing == "selective" and best.job.layout.strategy == "fsdp"


def test_forms_that_save_at_different_times_keep_their_bounds_in_order() -> None:
    """Saves at 0.01 GB/s take longer than the training: the low end is the fastest form's own, part by part."""
    wanted = worksheet_from_mapping({
        "model": {"name": "meta-llama/Llama-3.1-8B", "config": CONFIG}, "batch": {"sequence_tokens": 4096, "global_rows": 8},
        "data": {"tokens": 2e7}, "machine": {"storage_write_gb_s": 0.01}, "goal": {"budget": "10000"},
    })  # fmt: skip
    found = plan(wanted, size, with_timing, renter(offer(("A100-PCIE-80GB", "A100-SXM4-80GB"), 4, "5")))
    (best,) = (trial.rental for trial in found.options)
    assert best is not None and best.cost is not None and best.run_hours is not None
    assert 0 < best.cost.low <= best.cost.likely <= (best.cost.high or best.cost.likely) and 0 < best.run_hours.low <= best.run_hours.likely


def test_a_named_machine_is_priced_on_offers_like_it(sheet: Sheet) -> None:
    slow, small = offer("H100-SXM", 8, "8", network_gbit_s=10.0), offer("H100-SXM", 8, "9", host_memory_gib=4.0, network_gbit_s=3200.0)
    good = offer("H100-SXM", 8, "16", host_memory_gib=2000.0, network_gbit_s=3200.0)
    machine = {"nodes": 2, "network_gbit_s": 3200, "host_memory_gib": 2048}
    job = complete(sheet(machine=machine))
    assert renter(slow, small, good).offers_for(job, 10 * 2**30) == [good]
    assert renter(slow, small).offers_for(complete(sheet()), 10 * 2**30) == [slow]


def test_another_number_of_gpus_than_is_fixed(sheet: Sheet) -> None:
    found = planned(sheet, offer("H100-SXM", 8, "16"), machine={"gpus": 3}, batch={}, plan={"fixed": ["machine.gpus"]})
    assert not found.options
    assert [(out.limit, out.detail) for out in found.rejected] == [("availability", "machine.gpus is fixed to 3")]


def test_more_machines_are_not_tried_where_most_of_a_step_waits(sheet: Sheet) -> None:
    """At 1 Gbit/s a step of two machines is 50 s of work and 1,000 of communication: four are not timed."""
    found = planned(sheet, offer("H100-SXM", 8, "16", network_gbit_s=1.0), goal={"max_nodes": 4})
    assert {trial.job.machine.nodes for trial in found.options} == {1, 2}
    assert any(out.limit == "network" and out.what.startswith("4 nodes") for out in found.rejected)


def test_what_is_owned_hides_no_machine_to_buy(sheet: Sheet) -> None:
    own = {"provider": "own", "running_per_hour": Decimal(4)}
    bought = offer("H100-SXM", 8, "15", kind="bought", instance="new", purchase=Decimal(100_000), **own)
    found = planned(sheet, bought, offer("H100-SXM", 8, "4", kind="owned", instance="there", **own), offer("H100-SXM", 8, "24"))
    assert [row.pays_from_hours for row in found.rent_or_buy] == [5000]
