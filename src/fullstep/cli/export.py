"""Launch files of a worksheet for SkyPilot, dstack, Slurm or torchrun: a few measured steps first, then the run, which resumes."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_OK
from fullstep.cli.market_arguments import add_market_arguments, renter_from
from fullstep.cli.worksheet_arguments import add_worksheet_arguments, worksheet_from
from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.quantities import GIB, money

if TYPE_CHECKING:
    from fullstep.formats import LaunchFile
    from fullstep.job import Job, Worksheet
    from fullstep.ledger import Answer
    from fullstep.plan.rental import Rental
    from fullstep.plan.search import Plan
    from fullstep.plan.trial import Trial

_TOOLS = ("skypilot", "dstack", "slurm", "torchrun")
_CHOICES = {
    "cheapest": "cheapest",
    "on-demand": "cheapest on demand",
    "interruptible": "cheapest interruptible",
    "fastest": "fastest",
    "own": "on your own machine",
}
"""what one may want of the market, and how a plan calls it"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--to", required=True, choices=_TOOLS, help="the tool that launches")
    parser.add_argument("--output", metavar="FILE", help="a new file, or a folder (dstack: always a folder); else standard output")
    parser.add_argument("--force", action="store_true", help="overwrite files that are there")
    run = parser.add_argument_group("what is run")
    run.add_argument("--command", metavar="LINE", help='what stands behind torchrun, like "train.py --config my.yaml"')
    run.add_argument("--measure", metavar="LINE", help="for a few steps: a whole line, arguments (--measure=--max_steps=3), or none")
    run.add_argument("--probe", action="store_true", help="a probe of the worksheet instead of a run; its record goes to --checkpoints")
    run.add_argument("--probe-options", metavar="LINE", help='of `fullstep probe`, like "--steps 20 --evaluate"')
    run.add_argument("--setup", metavar="LINE", help="a line that installs what it needs (requirements.txt, where there is one)")
    run.add_argument("--checkpoints", metavar="PLACE", help="a bucket (skypilot), a volume (dstack) or an absolute path")
    run.add_argument("--max-hours", type=_hours, metavar="X", help="limit of the run (goal.finish_within_hours)")
    offer = parser.add_argument_group("what it runs on")
    offer.add_argument("--interruptible", action="store_true", help="spot capacity: recovered, queued again or retried by the tool")
    offer.add_argument("--provider", metavar="NAME", help="like aws")
    offer.add_argument("--region", metavar="NAME", help="like us-east-1")
    offer.add_argument("--instance", metavar="NAME", help="like p5.48xlarge")
    offer.add_argument("--price-per-hour", metavar="USD", help="of one node; dstack takes nothing dearer")
    which = offer.add_mutually_exclusive_group()
    at = "place in options of `fullstep plan --json`, from 0"
    which.add_argument("--option", type=_place_in_list, metavar="N", help=at)
    choose = "of the market, where the worksheet names no machine (cheapest); what the tool cannot start is passed over"
    which.add_argument("--choose", choices=tuple(_CHOICES), default="cheapest", help=choose)
    add_market_arguments(parser, sellers=False)
    add_worksheet_arguments(parser)


def _hours(text: str) -> float:
    """A number above 0."""
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= 10**6:
        raise argparse.ArgumentTypeError(f"{text}; allowed: hours above 0 and up to 1,000,000")
    return hours


def _place_in_list(text: str) -> int:
    """A whole number from 0."""
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise argparse.ArgumentTypeError(f"{text[:40]}; allowed: a whole number from 0")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Writes the files and returns the exit code: 3 where the worksheet does not fit, which their heads say too."""
    from fullstep.api.answer import answer_of  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.job import complete  # noqa: PLC0415

    _require_one_kind(arguments)
    worksheet = worksheet_from(arguments)
    if arguments.probe:
        _require_probed(worksheet)
    job = complete(worksheet)
    if job.machine.usable_bytes is None or arguments.option is not None:
        files, answer = _from_plan(worksheet, arguments)
    else:
        answer = answer_of(job, renter=renter_from(arguments))
        files = _files(job, answer, arguments, _Place.stated(arguments))
    if arguments.output is None:
        sys.stdout.write(_one_text(files))
    else:
        for path in _write(files, Path(arguments.output), arguments.force):
            sys.stderr.write(f"{path}\n")
    return EXIT_DOES_NOT_FIT if "does_not_fit" in (answer.memory.verdict, answer.host.verdict) else EXIT_OK


def _require_one_kind(arguments: argparse.Namespace) -> None:
    faults = []
    if arguments.probe and (arguments.command or arguments.measure):
        faults.append(Fault("--probe", "beside --command or --measure", "one of them: a probe builds its program from the worksheet"))
    if arguments.probe_options is not None and not arguments.probe:
        faults.append(Fault("--probe-options", "without --probe", "--probe beside it"))
    if faults:
        raise InputError(*faults)
    if arguments.probe:
        _require_probe_options(arguments.probe_options or "")


def _require_probe_options(line: str) -> None:
    """That the command on the machine will take them.

    Raises:
        InputError: they are none of a probe, or say what the file itself says
    """
    from fullstep.cli import probe  # noqa: PLC0415
    from fullstep.cli.arguments import ArgumentParser  # noqa: PLC0415

    try:
        words = shlex.split(line) if line.isprintable() else []
    except ValueError:
        return  # quotes and line breaks are faults of their own
    parser = ArgumentParser("probe", "")
    probe.add_arguments(parser)
    if "--" in words or parser.parse_args(words).worksheets is not None:
        raise InputError(Fault("--probe-options", f'"{line[:80]}"', "options alone: the worksheet is the one that is exported"))


def _require_probed(worksheet: Worksheet) -> None:
    """
    Raises:
        UnsupportedError: a probe does not cover the worksheet
    """
    from fullstep.job import settings_of  # noqa: PLC0415
    from fullstep.lab.probe import faults_of  # noqa: PLC0415

    if faults := faults_of(settings_of(worksheet), elsewhere=True):
        raise UnsupportedError(*(Fault(worksheet.where(each.where), each.found, each.allowed, each.remedy) for each in faults))


class _Place(NamedTuple):
    """Where it is to run, as far as that is chosen."""

    provider: str | None
    region: str | None
    instance: str | None
    price_per_hour: str | None
    interruptible: bool
    note: tuple[str, ...] = ()

    @classmethod
    def stated(cls, arguments: argparse.Namespace) -> _Place:
        known = (arguments.provider, arguments.region, arguments.instance, arguments.price_per_hour)
        return cls(*known, arguments.interruptible)

    @classmethod
    def rented(cls, rental: Rental, job: Job) -> _Place:
        """By an offer. Its price is told and no limit, as prices move; a region of all of a seller's, or of a marketplace, is none."""
        offer, price, currency = rental.offer, rental.offer.price(rental.interruptible), job.goal.currency
        note = f"Chosen: {rental.name}, {money(rental.per_hour, currency)} an hour, seen on {offer.captured_on}"
        plus = "" if rental.cost is None or not rental.cost.bill.unknown else ", and what its bill does not know"
        cost = () if rental.cost is None else (f"Cost: {money(rental.cost.likely, currency)} likely{plus}",)
        if offer.is_own:
            return cls(None, None, None, None, False, (note, *cost))
        named = None if " " in offer.instance else offer.instance
        region = None if offer.region == "any" or price is None or price.kind != "list" else offer.region
        return cls(offer.provider, region, named, None, rental.interruptible, (note, *cost))


def _files(job: Job, answer: Answer, arguments: argparse.Namespace, place: _Place) -> tuple[LaunchFile, ...]:
    """The files of a tool.

    Raises:
        InputError: the tool cannot start this there
    """
    from fullstep.formats import TOOLS, launch_from  # noqa: PLC0415

    traffic = None if answer.timing is None else answer.timing.traffic
    rate = None if traffic is None else traffic.required_gbit_s_per_node
    host_bytes = answer.host.memory_peak_bytes / (1 - job.goal.reserve_fraction)
    launch = launch_from(
        job, command=arguments.command, measure=arguments.measure, setup=arguments.setup, interruptible=place.interruptible,
        provider=place.provider, region=place.region, instance=place.instance, price_per_hour=place.price_per_hour,
        checkpoints=arguments.checkpoints, max_hours=arguments.max_hours, network_gbit_s=None if rate is None else rate.likely,
        host_gib=ceil(host_bytes / GIB), notes=(*_notes(answer, job.machine.nodes), *place.note),
        probe=(arguments.probe_options or "") if arguments.probe else None,
    )  # fmt: skip
    return TOOLS[arguments.to](launch)


def _from_plan(worksheet: Worksheet, arguments: argparse.Namespace) -> tuple[tuple[LaunchFile, ...], Answer]:
    """The option of a plan that is asked for; of the market, the first that is wanted and that the tool can start.

    An interruptible machine is passed over where its checkpoints would go with it: what it costs rests on going on from them.

    Raises:
        InputError: there is none; the fault is that of the first, or says what the market lacks
    """
    from fullstep.api.search import plan  # noqa: PLC0415
    from fullstep.cli.progress import progress  # noqa: PLC0415

    arguments.sellers, arguments.places = [arguments.provider] if arguments.provider else [], arguments.region
    with progress("searching"):
        found = plan(worksheet, renter=renter_from(arguments))
    first: InputError | None = None
    for trial in _wanted(found, arguments):
        place = _Place.stated(arguments) if trial.rental is None or not found.is_market else _Place.rented(trial.rental, trial.job)
        try:
            files = _files(trial.job, trial.answer, arguments, place)
        except InputError as error:
            first = first or error
            continue
        losing = found.is_market and place.interruptible and any(file.loses_checkpoints for file in files)
        if not losing or arguments.option is not None:
            return files, trial.answer
        what = f"{place.provider} is interruptible, and {arguments.to} keeps nothing there"
        allowed = "a folder or bucket that outlives the machine; or --choose on-demand"
        first = first or InputError(Fault("--checkpoints", what, allowed))
    if first is not None:
        raise first
    says_why = not found.options or found.verdict.answer in ("nothing_fits", "undecided")
    what = found.verdict.sentence if says_why else f"no machine on the market is {arguments.choose}"
    raise InputError(Fault("machine.gpu", what, "a machine that fits", "`fullstep plan` says why; or name machine.gpu."))


def _wanted(found: Plan, arguments: argparse.Namespace) -> list[Trial]:
    """The plan's own choice first, then other options of its kind, for tools that cannot start it."""
    if arguments.option is not None:
        if arguments.option >= len(found.options):
            last = f"a place from 0 to {len(found.options) - 1}" if found.options else "no option: nothing fits"
            raise InputError(Fault("--option", f"{arguments.option} of {len(found.options)} options", last))
        return [found.options[arguments.option]]
    label = _CHOICES[arguments.choose]
    chosen = [choice.trial for choice in found.choices if any(each.startswith(label) for each in choice.labels)]
    others = [trial for trial in found.options if trial.fits and trial.over_budget == 0 and trial.lateness == 0]
    if label == "fastest":
        others.sort(key=lambda trial: inf if trial.rental is None or trial.rental.run_hours is None else trial.rental.run_hours.likely)
    kinds = {
        "on-demand": lambda rental: not rental.interruptible and not rental.offer.is_own,
        "interruptible": lambda rental: rental.interruptible,
        "own": lambda rental: rental.offer.is_own,
    }
    able: Callable[[Rental], bool] = kinds.get(arguments.choose, lambda _: True)
    alike = (trial for trial in (*chosen, *others) if trial.rental is not None and able(trial.rental))
    return [
        trial for trial in alike
        if trial.rental is not None
        and (trial.rental.interruptible or not arguments.interruptible)
        and (arguments.instance is None or trial.rental.offer.instance == arguments.instance)
    ]  # fmt: skip


def _notes(answer: Answer, nodes: int) -> tuple[str, ...]:
    """What the heads of the files say of the estimate."""
    memory, traffic = answer.memory, None if answer.timing is None else answer.timing.traffic
    usable = "unknown" if memory.usable_bytes is None else f"{memory.usable_bytes / GIB:.1f} GiB"
    words = memory.verdict.replace("_", " ")
    needed = f"Memory: {memory.needed_bytes.likely / GIB:.1f} GiB needed of {usable} usable per GPU: {words} ({memory.evidence})"
    if nodes == 1 or (traffic is not None and traffic.required_gbit_s_per_node is not None):
        return (needed,)
    return needed, f"Network: {'not known' if traffic is None else traffic.why_no_rate or 'not known'}"


def _one_text(files: tuple[LaunchFile, ...]) -> str:
    """As it is; several files with their names between them."""
    if len(files) == 1:
        return files[0].text
    return "---\n".join(f"# {file.name}\n{file.text}" for file in files)


def _write(files: tuple[LaunchFile, ...], output: Path, force: bool) -> list[Path]:
    """The paths that were written: all of them, or none where one is there already."""
    whole = len(files) > 1
    try:
        whole = whole or output.is_dir()
        paths = [output / file.name for file in files] if whole else [output]
        there = [] if force else [Fault(str(path), "a file is there already", "a new file, or --force") for path in paths if path.exists()]
        if there:
            raise InputError(*there)
        if whole:
            output.mkdir(exist_ok=True)
        for path, file in zip(paths, files, strict=True):
            with path.open("w" if force else "x", encoding="utf-8") as sheet:
                sheet.write(file.text)
    except OSError as error:
        allowed = "a folder, or a name for a new one" if whole else "a file in a folder that is there"
        raise InputError(Fault(str(output)[:200], f"cannot be written: {error.strerror}", allowed)) from None
    return paths
