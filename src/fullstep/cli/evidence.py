"""What probes and links measured, kept as records: lists those of a folder or URL, puts two side by side or one beside its own estimate,
and says whether files are sound records. Records come from outside: they are read as data, nothing in them is executed. Exit code of
validate: 2 where one is not sound."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from fullstep.cli import EXIT_INPUT, EXIT_OK
from fullstep.errors import Fault, InputError

if TYPE_CHECKING:
    from fullstep.formats.probe_record import Stored
    from fullstep.ledger.link import MeasuredLink
    from fullstep.ledger.probe import Probe

_USES = {"list": "list WHERE", "compare": "compare A [B]", "validate": "validate FILE_OR_WHERE ..."}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.usage = "fullstep evidence list WHERE | compare A [B] | validate FILE_OR_WHERE ... [options]"
    parser.add_argument("action", metavar="ACTION", nargs="?", help="list, compare or validate")
    parser.add_argument("places", metavar="WHERE", nargs="*", help="a record, a folder of records, or a URL that fsspec reaches")
    parser.add_argument("--trace", action="store_true", help="beside its own estimate also its own trace; needs the extra lab")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Reads the records and returns the exit code."""
    _check(arguments.action, arguments.places)
    if arguments.action == "compare" and len(arguments.places) == 1:
        return _beside_itself(arguments.places[0], arguments.trace, arguments.json)
    if arguments.trace:
        raise InputError(Fault("--trace", f"beside {arguments.action} of other records", "fullstep evidence compare A --trace"))
    return {"list": _list, "compare": _compare, "validate": _validate}[arguments.action](arguments.places, arguments.json)


def _list(places: list[str], as_json: bool) -> int:
    from fullstep.formats.probe_record import read_all  # noqa: PLC0415 (after the arguments are known to be good)

    stored = read_all(places[0])
    found = ((each.name, each.probe or each.link) for each in stored)
    records = sorted(((name, record) for name, record in found if record is not None), key=lambda pair: (pair[1].made, pair[0]))
    bad = [(each.name, each.faults) for each in stored if not each.is_sound]
    if as_json:
        from fullstep.report.evidence_json import list_as_dict  # noqa: PLC0415

        return _write(list_as_dict(places[0], records, bad))
    from fullstep.report.evidence_text import list_text  # noqa: PLC0415
    from fullstep.report.paper import Paper  # noqa: PLC0415

    sys.stdout.write(list_text(places[0], records, bad, Paper.of(sys.stdout)))
    return EXIT_OK


def _compare(places: list[str], as_json: bool) -> int:
    from fullstep.calibration.records import compare_links, compare_probes  # noqa: PLC0415
    from fullstep.formats.probe_record import read_any  # noqa: PLC0415

    first, second = map(read_any, places)
    names = (first.name, second.name)
    records: tuple[Probe | MeasuredLink, Probe | MeasuredLink]
    if first.probe is not None and second.probe is not None:
        records, found = (first.probe, second.probe), compare_probes(first.probe, second.probe)
    elif first.link is not None and second.link is not None:
        records, found = (first.link, second.link), compare_links(first.link, second.link)
    else:
        raise InputError(Fault("command line", "a record of a probe and one of links", "two of one kind"))
    if as_json:
        from fullstep.report.evidence_json import compared_as_dict  # noqa: PLC0415

        return _write(compared_as_dict(names, records, found))
    from fullstep.report.evidence_text import compared_text  # noqa: PLC0415
    from fullstep.report.paper import Paper  # noqa: PLC0415

    sys.stdout.write(compared_text(names, records, found, Paper.of(sys.stdout)))
    return EXIT_OK


def _beside_itself(where: str, traces: bool, as_json: bool) -> int:
    from fullstep.formats.probe_record import read_any  # noqa: PLC0415

    name, probe, _, link = read_any(where)
    if link is not None:
        return _beside_assumed(link, as_json)
    assert probe is not None
    from fullstep.api.evidenced import beside_itself  # noqa: PLC0415 (after the arguments are known to be good)

    lines = beside_itself(name, probe, traces=traces)
    if as_json:
        from fullstep.report.evidence_used import beside_as_dict  # noqa: PLC0415

        return _write(beside_as_dict(name, probe, lines))
    from fullstep.report.evidence_used import beside_text  # noqa: PLC0415
    from fullstep.report.paper import Paper  # noqa: PLC0415

    sys.stdout.write(beside_text(name, probe, lines, Paper.of(sys.stdout)))
    return EXIT_OK


def _beside_assumed(link: MeasuredLink, as_json: bool) -> int:
    """What was measured of links beside what the network model assumes of them today."""
    from fullstep.api.linked import assumed_beside  # noqa: PLC0415

    assumed, assumed_of = assumed_beside(link, link.network_gbit_s)
    if as_json:
        from fullstep.report.link_json import link_as_dict  # noqa: PLC0415

        return _write(link_as_dict(link, assumed, assumed_of, ["fullstep", *sys.argv[1:]]))
    from fullstep.report.link_text import link_text  # noqa: PLC0415
    from fullstep.report.paper import Paper  # noqa: PLC0415

    sys.stdout.write(link_text(link, assumed, assumed_of, Paper.of(sys.stdout)))
    return EXIT_OK


def _validate(places: list[str], as_json: bool) -> int:
    checked = [(each.name, each.probe or each.link, each.faults) for where in places for each in _read(where)]
    if as_json:
        from fullstep.report.evidence_json import validated_as_dict  # noqa: PLC0415

        _write(validated_as_dict(checked))
    else:
        from fullstep.report.evidence_text import validated_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        sys.stdout.write(validated_text(checked, Paper.of(sys.stdout)))
    return EXIT_OK if checked and all(record is not None for _, record, _ in checked) else EXIT_INPUT


def _read(where: str) -> tuple[Stored, ...]:
    """A place that is not there does not hide the others."""
    from fullstep.formats.probe_record import Stored, read_all  # noqa: PLC0415

    try:
        return read_all(where)
    except InputError as error:
        return (Stored(where, None, error.faults),)


def _check(action: str | None, places: list[str]) -> None:
    """Returns where the words of the command line make sense.

    Raises:
        InputError: they do not
    """
    if action not in _USES:
        from fullstep.job.refusal import describe, did_you_mean  # noqa: PLC0415 (only a wrong word pays for it)

        remedy = did_you_mean(action or "", list(_USES)) or f"For example fullstep evidence {_USES['list']}."
        raise InputError(Fault("command line", "no action" if action is None else describe(action), ", ".join(_USES), remedy))
    fits = {"list": len(places) == 1, "compare": len(places) in (1, 2), "validate": len(places) >= 1}[action]
    if not fits:
        raise InputError(Fault("command line", f"{len(places)} places", f"fullstep evidence {_USES[action]}"))


def _write(document: dict[str, object]) -> int:
    from fullstep.report.json import dump  # noqa: PLC0415

    sys.stdout.write(dump(document) + "\n")
    return EXIT_OK
