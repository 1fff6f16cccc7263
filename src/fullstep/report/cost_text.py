"""What it costs, for the terminal: the bill line by line, other offers, why not the cheaper ones, whether to buy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from math import inf

from fullstep.job import Settings
from fullstep.ledger import Bill, BillLine, Cost
from fullstep.offers.market import is_old
from fullstep.offers.offer import PRICE_KIND_WORDS
from fullstep.plan.layouts import layout_name, machine_words
from fullstep.plan.rejections import Rejection
from fullstep.plan.rental import Rental
from fullstep.plan.savers import level_words
from fullstep.plan.search import Plan
from fullstep.plan.trial import Trial
from fullstep.quantities import Bounds, Currency, cents, money
from fullstep.report.paper import Paper
from fullstep.report.wording import VERDICTS, gib

_SHOWN = 10
_CHEAPER_SHOWN = 5
_NEAR_ZERO = Decimal("0.00005")
_RATE = "cost.usd_for_one_"


def cost_lines(rentals: Sequence[Rental], job: Settings, paper: Paper, today: date) -> list[str]:
    """What the run costs on each of its rentals, the bill of the first, and the rates of currencies that were used."""
    lines: list[str] = []
    for number, rental in enumerate(rentals):
        lines += paper.entry("" if number else "Cost", rental_words(rental, job, today))
    if not rentals:
        return lines
    cost, rates = rentals[0].cost, [each for each in rentals[0].assumptions if each.key.startswith(_RATE)]
    lines += [] if cost is None else bill_lines(cost.bill, paper)
    told = [f"1 {each.key.removeprefix(_RATE).upper()} = {each.value} USD {each.why}" for each in rates]
    return [*lines, *(line for words in told for line in paper.entry("Rate", words))]


def rental_words(rental: Rental, job: Settings, today: date) -> str:
    """One rental in a sentence: cost with its bounds, where, by which price, and what to expect."""
    currency, runs = job.goal.currency, job.goal.runs
    price = rental.offer.price(rental.interruptible)
    kind = "" if price is None else f", {PRICE_KIND_WORDS[price.kind]}"
    at = "of" if price is None or price.kind == "list" else "on"  # a list is of a day, what somebody saw was seen on it
    seen = "" if rental.offer.is_own else f" {at} {rental.offer.captured_on}{old_mark(rental, today)}"
    rent = f"{money(rental.per_hour, currency)} an hour{kind}{seen}"
    if rental.cost is None:
        each = rental.per_million_tokens
        token = "" if each is None else f" · {money(each, currency)} per million tokens of training"
        return f"{rental.name}{form_words(rental)}: {rent}{token}{_network_words(rental, job)}"
    many = f" for {runs} runs" if runs > 1 else ""
    where = f"{cost_words(rental.cost, currency)}{many} at {rental.name}{form_words(rental)}"
    return f"{where}: {rent}{_expected_words(rental, runs)}{_chance_words(rental)}"


def form_words(rental: Rental) -> str:
    """The forms of card that an offer may mean, where it does not say."""
    cards = rental.offer.cards
    return f" (form not said: {' or '.join(card.key for card in cards)})" if len(cards) > 1 else ""


def _network_words(rental: Rental, job: Settings) -> str:
    """The network that the offer states, where the worksheet lacks it and therefore no step is timed."""
    rate, machine = rental.offer.network_gbit_s, job.machine
    if machine.nodes == 1 or machine.network_gbit_s is not None or rate is None:
        return ""
    rdma = {True: ", machine.rdma = true", False: ", machine.rdma = false", None: ""}[rental.offer.rdma]
    return f" · for its bill state its network: machine.network_gbit_s = {rate:g}{rdma}"


def old_mark(rental: Rental, today: date) -> str:
    """How old the price is, where it is too old to trust unmarked."""
    return f", {(today - rental.offer.captured_on).days} days old" if is_old(rental.offer, today) else ""


def cost_words(cost: Cost, currency: Currency) -> str:
    """Likely, with the bounds; a plus where the bill has lines that are not known.

    >>> one = Decimal(150)
    >>> cost_words(Cost(Decimal(120), one, None, Bill("USD", ()), Bounds.exact(1), 0.0, one), "USD")
    '$150 ($120 to no end)'
    """
    plus = "+" if cost.bill.unknown else ""
    high = "to no end" if cost.high is None else f"to {money(cost.high, currency)}"
    span = f" ({money(cost.low, currency)} {high})" if cost.high is None or cents(cost.low) != cents(cost.high) else ""
    return f"{money(cost.likely, currency)}{plus}{span}"


def _expected_words(rental: Rental, runs: int) -> str:
    if rental.cost is None or rental.run_hours is None:
        return ""
    words = f" · {_hours(rental.run_hours)} from order to result"
    words += f" of a run, {_hours(rental.cost.hours)} for all with their pauses" if runs > 1 else ""
    if rental.interruptible:
        spread = money(rental.cost.deviation, rental.cost.bill.currency)
        words += f" · {rental.cost.interruptions:,.1f} interruptions expected (standard deviation {spread})"
    return words


def _chance_words(rental: Rental) -> str:
    known = ((rental.in_time, "to end in time"), (rental.in_budget, "to stay within the budget"))
    return "".join(f" · {100 * chance:.0f} % {what}" for chance, what in known if chance is not None)


def bill_lines(bill: Bill, paper: Paper) -> list[str]:
    """The bill as a table; what is not known says so and gives its unit price where there is one."""
    lines = []
    for line in bill.lines:
        if line.amount is not None and line.quantity is not None and line.quantity < _NEAR_ZERO and not line.note:
            continue
        left = f"    {line.what:<27}{_quantity(line):>11} {line.unit:<10}"
        left += f"{_unit_price(line, bill.currency):>12}{_amount(line, bill.currency):>12}"
        fits = len(left) + len(line.note) + 2 <= paper.width
        lines.append(left + (f"  {line.note}" if line.note and fits else ""))
        if line.note and not fits:
            lines += [f"      {piece}" for piece in paper.wrapped(line.note, paper.width - 6)]
    total = money(bill.total, bill.currency)
    return [*lines, f"    {'total':<61}{total:>12}{'+' if bill.unknown else ''}"]


def _quantity(line: BillLine) -> str:
    return "unknown" if line.quantity is None else f"{line.quantity:,.2f}"


def _unit_price(line: BillLine, currency: Currency) -> str:
    return "unknown" if line.unit_price is None else "free" if line.unit_price == 0 else f"x {money(line.unit_price, currency)}"


def _amount(line: BillLine, currency: Currency) -> str:
    return "unknown" if line.amount is None else money(cents(line.amount), currency)


def market_lines(plan: Plan, paper: Paper, today: date) -> list[str]:
    """The answers by what one chooses for, the cheapest of the others, and how old the prices are."""
    named, rows = {id(choice.trial) for choice in plan.choices}, plan.as_written.job.rows_per_step
    lines: list[str] = []
    for number, choice in enumerate(plan.choices):
        label = ", ".join(choice.labels)
        chances = "" if choice.trial.rental is None else _chance_words(choice.trial.rental)
        lines += paper.entry("" if number else "Choose", f"{label}: {option_on_offer(choice.trial, today, rows)}{chances}")
    others = [trial for trial in plan.options if id(trial) not in named]
    front = {id(trial) for trial in plan.not_beaten}
    for number, trial in enumerate(others[:_SHOWN]):
        mark = " *" if id(trial) in front else ""
        lines += paper.entry("" if number else "Also", option_on_offer(trial, today, rows) + mark)
    if len(others) > _SHOWN:
        lines += paper.entry("", f"and {len(others) - _SHOWN} more (--json lists all)")
    if others:
        signs = "* no other is cheaper, faster and interrupted less; + and what is unknown"
        lines += paper.entry("Ranked by", f"fits, in time, within the budget; then likely cost. {signs}")
    return lines + _cheaper_lines(plan, paper) + _buy_lines(plan, paper) + _age_lines(plan.options, paper, today)


def option_on_offer(trial: Trial, today: date, rows: int) -> str:
    """One option in a line: cost, time, machine, layout, seller; ``rows``: of an optimizer step as the worksheet has it."""
    rental, job = trial.rental, trial.job
    if rental is None:
        return machine_words(job)
    currency, each = job.goal.currency, rental.per_million_tokens
    more = f" and {rental.elsewhere} other offer{'s' if rental.elsewhere > 1 else ''} of theirs" if rental.elsewhere else ""
    where = f"{_machine_and_layout(trial, rental, rows)} · {rental.name}{more}{' †' if is_old(rental.offer, today) else ''}"
    if rental.cost is not None and rental.run_hours is not None:
        return f"{cost_words(rental.cost, currency)}, {_hours(rental.run_hours)} · {where}"
    token = "" if each is None else f"{money(each, currency)} per million tokens, "
    return f"{token}{money(rental.per_hour, currency)} an hour · {where}"


def _machine_and_layout(trial: Trial, rental: Rental, rows: int) -> str:
    """``2 nodes of 8 x H100-SXM joined by 3,200 Gbit/s, FSDP2, full recomputation``, and what is not sure or slow about it."""
    job = trial.job
    words = [machine_words(job)]
    words[0] += form_words(rental)
    if job.machine.nodes > 1 and job.machine.network_gbit_s is not None:
        words[0] += f" joined by {job.machine.network_gbit_s:,.0f} Gbit/s"
    words += [] if trial.fits else [VERDICTS[trial.verdict]]
    words += [] if job.layout.strategy == "single" else [layout_name(job.layout)]
    words += [level_words(job)] if level_words(job) else []
    made = job.rows_per_step  # where the GPUs cannot share those of the worksheet: fewer, larger steps
    words += [] if made == rows else [f"{made} rows per optimizer step instead of {rows}"]
    slow = job.machine.card is not None and not job.machine.card.has_flash_attention and job.step.attention != "flash"
    return ", ".join([*words, *(["no flash attention on this card"] if slow else [])])


def _hours(hours: Bounds) -> str:
    """Low to high.

    >>> _hours(Bounds(1.04, 2, 3)), _hours(Bounds.exact(120)), _hours(Bounds(0.25, 0.3, inf))
    ('1.0-3.0 h', '120 h', '0.25 h to no end')
    """
    digits = 2 if hours.likely < 1 else 1 if hours.likely < 100 else 0
    low, high = f"{hours.low:,.{digits}f}", f"{hours.high:,.{digits}f}"
    if hours.high == inf:
        return f"{low} h to no end"
    return f"{low} h" if low == high else f"{low}-{high} h"


def _cheaper_lines(plan: Plan, paper: Paper) -> list[str]:
    """Why not a machine that is cheaper by the hour than the best option."""
    best = plan.options[0].rental if plan.options else None
    if best is None:
        return []
    known = [(out.per_hour, out) for out in plan.rejected if out.per_hour is not None]
    found = sorted((pair for pair in known if pair[0] < best.per_hour), key=lambda pair: pair[0])
    currency = plan.as_written.job.goal.currency
    texts = []
    for price, out in found:
        many = f"{len(out.offers)} offers" if len(out.offers) > 1 else "one offer"
        texts.append(f"{out.what} from {money(price, currency)} an hour ({many}): {_why(out)}")
    texts = list(dict.fromkeys(texts))
    lines: list[str] = []
    for number, text in enumerate(texts[:_CHEAPER_SHOWN]):
        lines += paper.entry("" if number else "Not cheaper", text)
    if len(texts) > _CHEAPER_SHOWN:
        lines += paper.entry("", f"and {len(texts) - _CHEAPER_SHOWN} more kinds of machines that are cheaper by the hour (see Not)")
    return lines


def _why(out: Rejection) -> str:
    if out.unit == "bytes" and out.needed is not None and out.available is not None:
        what = " of host memory" if out.limit == "host_memory" else ""
        return f"{gib(out.needed)} GiB{what} needed {out.detail}, {gib(out.available)} there"
    return out.detail.rstrip(".")


def _buy_lines(plan: Plan, paper: Paper) -> list[str]:
    currency = plan.as_written.job.goal.currency
    lines: list[str] = []
    for number, row in enumerate(plan.rent_or_buy):
        if row.pays_from_hours is None:
            verdict = "buying never pays: running it costs as much as the rent"
        else:
            verdict = f"buying pays from {row.pays_from_hours:,.0f} hours of work on"
        rent = f"{row.rented} at {money(row.rent_per_hour, currency)} an hour"
        lines += paper.entry("" if number else "Rent or buy", f"{row.bought.name} beside {rent}: {verdict}")
    return lines


def _age_lines(options: Iterable[Trial], paper: Paper, today: date) -> list[str]:
    rented = (trial.rental.offer for trial in options if trial.rental is not None)
    ages = sorted((today - offer.captured_on).days for offer in rented if is_old(offer, today))
    if not ages:
        return []
    span = f"{ages[0]} to {ages[-1]}" if ages[0] != ages[-1] else f"{ages[0]}"
    moved = "they move by 10 to 40 % a month: `fullstep offers refresh`, or yours in machines.toml"
    return paper.entry("† Old prices", f"{span} days old, and {moved}")
