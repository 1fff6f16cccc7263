"""Fetches the prices of many providers at once and saves what came, each provider for itself."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.job.refusal import describe, did_you_mean
from fullstep.offers.live.answers import FetchError, Parsed, one_line
from fullstep.offers.live.gpuhunt_process import Workers
from fullstep.offers.live.sources import LiveSource, Way, live_sources
from fullstep.offers.live.transport import Deadline
from fullstep.offers.provider import providers as all_providers
from fullstep.offers.saved import save_offers, saved_folder

TIMEOUT_SECONDS = 20.0
_LONGEST_TIMEOUT_SECONDS = 600.0
_GRACE_SECONDS = 0.5
"""after which a way that does not keep its own time is left behind; looking up a name knows no limit of time"""
_LOOK_AGAIN_SECONDS = 0.5


class Outcome(NamedTuple):
    """What became of one provider."""

    provider: str
    state: Literal["done", "failed", "left_out"]
    reason: str = ""
    """why it failed, or was left out; of one that came, what failed before"""
    asked: str = ""
    """whom the offers come from"""
    offers: int = 0
    dropped: Mapping[str, int] = {}
    """rows that were left out, by reason"""


class Refresh(NamedTuple):
    """What became of all."""

    outcomes: tuple[Outcome, ...]
    folder: Path
    """where the offers are saved, one file per provider"""

    @property
    def done(self) -> tuple[Outcome, ...]:
        """Those whose offers were saved."""
        return tuple(outcome for outcome in self.outcomes if outcome.state == "done")


def refresh(
    names: Sequence[str] = (),
    timeout_seconds: float = TIMEOUT_SECONDS,
    tell: Callable[[Outcome], None] = lambda _: None,
    begin: Callable[[int], None] = lambda _: None,
) -> Refresh:
    """Asks all providers that can be asked, or those that are named, at the same time.

    Args:
        names: of providers; none: all
        timeout_seconds: for each way to a provider
        tell: is told each outcome when it is there
        begin: is told how many providers are asked, before any is

    Raises:
        InputError: a name or the time is at fault, or there is no folder to save in
    """
    sources = _chosen(names)
    folder = saved_folder()
    if not 1 <= timeout_seconds <= _LONGEST_TIMEOUT_SECONDS:
        raise InputError(Fault("--timeout", describe(timeout_seconds), f"seconds from 1 to {_LONGEST_TIMEOUT_SECONDS:.0f}"))
    if folder is None:
        raise InputError(Fault("FULLSTEP_CACHE", "off, or no home folder", "a cache folder, where fetched offers are kept"))
    outcomes: list[Outcome] = []
    for provider, source in sources.items():
        if missing := source.missing():
            outcomes.append(Outcome(provider, "failed" if names else "left_out", missing))
            tell(outcomes[-1])
    asked = {provider: source for provider, source in sources.items() if not source.missing()}
    begin(len(asked))
    for provider, answer in _answers(asked, timeout_seconds, datetime.now(tz=UTC).date()):
        outcomes.append(_saved(provider, answer, folder))
        tell(outcomes[-1])
    return Refresh(tuple(outcomes), folder)


class _Answer(NamedTuple):
    parsed: Parsed
    asked: str
    reasons: tuple[str, ...]


def _answers(sources: Mapping[str, LiveSource], seconds: float, today: date) -> Iterator[tuple[str, _Answer]]:
    """The answers in the order in which they come. Nothing that was started runs on at the end, whatever ends it."""
    arrived: queue.Queue[tuple[str, _Answer]] = queue.Queue()
    with Workers() as workers:

        def ask(provider: str, ways: Sequence[Way]) -> None:
            arrived.put((provider, _first_with_offers(ways, workers, seconds, today)))

        for provider, source in sources.items():
            threading.Thread(target=ask, args=(provider, source.usable()), daemon=True).start()
        for _ in sources:
            yield _next(arrived)


def _next(arrived: queue.Queue[tuple[str, _Answer]]) -> tuple[str, _Answer]:
    while True:
        try:
            return arrived.get(timeout=_LOOK_AGAIN_SECONDS)  # some systems notice Ctrl-C only between two waits
        except queue.Empty:
            continue


def _first_with_offers(ways: Sequence[Way], workers: Workers, seconds: float, today: date) -> _Answer:
    """Tries one way after the other until one has offers."""
    reasons: list[str] = []
    for way in ways:
        try:
            parsed = _within(way, workers, seconds, today)
            if parsed.offers:
                return _Answer(parsed, way.name, tuple(reasons))
            reasons.append(f"{way.name}: no offer that can be used{_count(parsed.dropped)}")
        except FetchError as error:
            reasons.append(f"{way.name}: {error}")
    return _Answer(Parsed((), {}), "", tuple(reasons))


def _within(way: Way, workers: Workers, seconds: float, today: date) -> Parsed:
    found: list[Parsed | FetchError] = []

    def fetch() -> None:
        try:
            found.append(way.fetch(workers, Deadline(seconds), today))
        except FetchError as error:
            found.append(error)
        except Exception as error:  # a fault of ours in reading one provider harms no other
            found.append(FetchError(f"a fault of fullstep itself: {type(error).__name__}: {error}"))

    thread = threading.Thread(target=fetch, daemon=True)
    started = time.monotonic()
    thread.start()
    thread.join(seconds + _GRACE_SECONDS)
    if not found:
        raise FetchError(f"no answer within {time.monotonic() - started:.0f} s")
    if isinstance(found[0], FetchError):
        raise found[0]
    return found[0]


def _saved(provider: str, answer: _Answer, folder: Path) -> Outcome:
    reason = "; ".join(answer.reasons)
    if not answer.parsed.offers:
        return Outcome(provider, "failed", reason)
    try:
        save_offers(provider, answer.parsed.offers, folder)
    except OSError as error:
        return Outcome(provider, "failed", one_line(f"could not be saved in {folder}: {error.strerror or error}"))
    return Outcome(provider, "done", reason, answer.asked, len(answer.parsed.offers), answer.parsed.dropped)


def _count(dropped: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{count} {reason}' for reason, count in dropped.items())})" if dropped else ""


def _chosen(names: Sequence[str]) -> Mapping[str, LiveSource]:
    sources = live_sources()
    faults = []
    for name in names:
        if name in all_providers() and name not in sources:
            remedy = "Its prices are not public in a form that is read here: enter yours in machines.toml, see docs/offers.md."
            faults.append(Fault("--provider", f'"{name}" cannot be fetched', ", ".join(sources), remedy))
        elif name not in sources:
            faults.append(Fault("--provider", f"no provider {describe(name)}", ", ".join(sources), did_you_mean(name, list(sources))))
    if faults:
        raise InputError(*faults)
    return {name: sources[name] for name in dict.fromkeys(names)} if names else sources
