"""Who rents which machine at what price, seen when. `fullstep offers refresh` fetches prices of today; it is untried against the live
services, so that a provider may fail: that harms no other, and what is saved of it stays. Exit code of refresh: 0 where at least one
provider came through, 4 where none did."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation

from fullstep.cli import EXIT_LAB, EXIT_OK
from fullstep.errors import Fault, InputError
from fullstep.quantities import CURRENCIES, Currency

_MOST = 100_000
_LIST_ONLY = (
    "gpu", "region", "gpus", "min_gpus", "min_memory_gib", "interruptible", "max_price", "currency", "network", "sort", "limit", "machines",
    "compare",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.usage = "fullstep offers [refresh] [options]"
    parser.add_argument("action", nargs="?", metavar="refresh", help="fetch prices of today and keep them")
    parser.add_argument("--provider", nargs="+", action="extend", default=[], metavar="NAME", help="only these; shows their terms too")
    parser.add_argument("--gpu", metavar="NAME", help="a card; one that is sold in several forms means all of them")
    parser.add_argument("--region", metavar="TEXT", help="a part of the region's name")
    parser.add_argument("--gpus", type=_whole, metavar="N", help="GPUs of one machine, exactly")
    parser.add_argument("--min-gpus", type=_whole, metavar="N", help="GPUs of one machine, at least")
    parser.add_argument("--min-memory-gib", type=_amount, metavar="GIB", help="memory of one card, as its driver reports it")
    parser.add_argument("--interruptible", action="store_true", help="prices of machines that may be taken away")
    parser.add_argument("--max-price", type=_amount, metavar="AMOUNT", help="per hour of the machine, in --currency")
    parser.add_argument("--currency", metavar="CODE", help="USD (default), EUR or RUB")
    parser.add_argument("--network", action="store_true", help="only where the network between machines is known")
    parser.add_argument("--sort", metavar="BY", help="price (default), gpu-price, or memory of the machine")
    parser.add_argument("--limit", type=_whole, metavar="N", help="lines at most (30)")
    parser.add_argument("--compare", nargs="+", metavar="NAME", help="providers or offers side by side, with their terms")
    parser.add_argument("--machines", metavar="FILE", help="your machines, prices and terms (machines.toml, where there is one)")
    parser.add_argument("--timeout", type=_amount, metavar="SECONDS", help="of refresh, for each way to a provider (20)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Lists, compares or refreshes, and returns the exit code."""
    providers = [name for word in arguments.provider for name in word.split(",") if name]
    if arguments.action is not None:
        _check_action(arguments.action)
        return _refresh(arguments, providers)
    if arguments.timeout is not None:
        raise InputError(Fault("--timeout", "without refresh", "fullstep offers refresh --timeout SECONDS"))
    return _compare(arguments) if arguments.compare else _list(arguments, providers)


def _list(arguments: argparse.Namespace, providers: list[str]) -> int:
    from fullstep.api.sellers import offers  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.offers.listing import DEFAULT_LIMIT, OfferFilters  # noqa: PLC0415

    filters = OfferFilters(
        gpu=arguments.gpu or "",
        providers=tuple(dict.fromkeys(providers)),
        region=arguments.region or "",
        gpus=arguments.gpus,
        min_gpus=arguments.min_gpus,
        min_memory_gib=None if arguments.min_memory_gib is None else float(arguments.min_memory_gib),
        interruptible=arguments.interruptible,
        max_price=arguments.max_price,
        known_network=arguments.network,
        currency=_currency(arguments),
        sort=arguments.sort or "price",
        limit=arguments.limit or DEFAULT_LIMIT,
    )
    found = offers(filters, machines=arguments.machines)
    if arguments.json:
        from fullstep.report.offers_json import offers_as_dict  # noqa: PLC0415

        return _write_json(offers_as_dict(found))
    from fullstep.report.offers_text import offers_text  # noqa: PLC0415
    from fullstep.report.paper import Paper  # noqa: PLC0415

    sys.stdout.write(offers_text(found, Paper.of(sys.stdout)))
    return EXIT_OK


def _compare(arguments: argparse.Namespace) -> int:
    from fullstep.api.sellers import compare_offers  # noqa: PLC0415

    found = compare_offers(arguments.compare, currency=_currency(arguments), gpu=arguments.gpu or "", machines=arguments.machines)
    if arguments.json:
        from fullstep.report.offers_json import comparison_as_dict  # noqa: PLC0415

        return _write_json(comparison_as_dict(found))
    from fullstep.report.comparison_text import comparison_text  # noqa: PLC0415
    from fullstep.report.paper import Paper  # noqa: PLC0415

    sys.stdout.write(comparison_text(found, Paper.of(sys.stdout)))
    return EXIT_OK


def _refresh(arguments: argparse.Namespace, providers: list[str]) -> int:
    from fullstep.api.sellers import refresh_offers  # noqa: PLC0415
    from fullstep.offers.live.refresh import TIMEOUT_SECONDS, Outcome  # noqa: PLC0415
    from fullstep.report.refresh_text import outcome_text, refresh_text  # noqa: PLC0415

    stray = [f"--{name.replace('_', '-')}" for name in _LIST_ONLY if getattr(arguments, name)]
    if stray:
        raise InputError(Fault(", ".join(stray), "does not go with refresh", "--provider, --timeout, --json"))
    lines = sys.stderr if arguments.json else sys.stdout

    def tell(outcome: Outcome) -> None:
        if outcome.state != "left_out":  # those are told together at the end
            lines.write(outcome_text(outcome))
            lines.flush()

    seconds = TIMEOUT_SECONDS if arguments.timeout is None else float(arguments.timeout)

    def begin(asked: int) -> None:
        whom = f"{asked} provider{'' if asked == 1 else 's'}"
        lines.write(f"Asking {whom}, at most {seconds:g} s each (untried against the live services) ...\n")
        lines.flush()

    found = refresh_offers(providers, timeout_seconds=seconds, progress=tell, begin=begin)
    if arguments.json:
        from fullstep.report.offers_json import refresh_as_dict  # noqa: PLC0415

        _write_json(refresh_as_dict(found))
    else:
        sys.stdout.write(refresh_text(found))
    return EXIT_OK if found.done else EXIT_LAB


def _write_json(document: dict[str, object]) -> int:
    from fullstep.report.json import dump  # noqa: PLC0415

    sys.stdout.write(dump(document) + "\n")
    return EXIT_OK


def _currency(arguments: argparse.Namespace) -> Currency:
    asked = (arguments.currency or "USD").upper()
    for code in CURRENCIES:
        if code == asked:
            return code
    from fullstep.job.refusal import describe, nearest  # noqa: PLC0415 (only a wrong word pays for it)

    near = nearest(asked, [code.lower() for code in CURRENCIES])
    hint = f"Did you mean {near.upper()}?" if near else ""
    raise InputError(Fault("--currency", describe(asked), ", ".join(CURRENCIES), hint))


def _check_action(text: str) -> None:
    if text != "refresh":
        from fullstep.job.refusal import describe, did_you_mean  # noqa: PLC0415 (only a wrong word pays for it)

        hint = did_you_mean(text, ["refresh"]) or "To filter: --gpu, --provider, --region."
        raise InputError(Fault("command line", describe(text), "refresh, the only word that goes here", hint))


def _whole(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= number <= _MOST:
        raise ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to {_MOST:,}")
    return number


def _amount(text: str) -> Decimal:
    try:
        number = Decimal(text) if len(text) < 20 else Decimal(0)
    except InvalidOperation:
        number = Decimal(0)
    if not number.is_finite() or not 0 < number <= 10**9:
        raise ArgumentTypeError(f"{text[:40]!r} is no number above 0")
    return number
