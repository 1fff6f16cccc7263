"""A record of links from outside: read as data, strictly; what it comes to is worked out from its samples."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.formats.probe_record.link_schema import LINK_RECORD
from fullstep.formats.probe_record.wholeness import CHANGED, alike, require_whole
from fullstep.job.refusal import describe
from fullstep.ledger.link import LINK_COLLECTIVES, LinkSample, MeasuredLink

_RELATIVE = 1e-6
"""of derived figures: a line is rounded to nine digits"""


def link_from_record(record: dict[str, Any], origin: str) -> MeasuredLink:
    """The measurement in a record of the right kind and schema.

    Args:
        record: parsed
        origin: the name of its file, for messages

    Raises:
        InputError: what it says is not allowed, or it was changed
    """
    require_whole(record, LINK_RECORD, origin)
    link = _link(record)
    _require_sound(link, record, origin)
    return link


def _link(record: dict[str, Any]) -> MeasuredLink:
    environment = record["environment"]
    ranks = environment["ranks"]
    missing = {each.get("collective"): each.get("missing") for each in record["summary"]}
    return MeasuredLink(
        made=record["made"],
        device=environment["device"],
        backend=environment["backend"],
        ranks=ranks,
        nodes=environment["nodes"],
        network_gbit_s=environment["network_gbit_s"],
        processors=environment["processors"],
        iterations=record["iterations"],
        warm_up=record["warm_up"],
        samples=tuple(LinkSample(each["collective"], each["size_bytes"], ranks, tuple(each["seconds"])) for each in record["samples"]),
        missing={name: str(missing[name]) for name in LINK_COLLECTIVES if missing.get(name) is not None},
        versions={name: str(value) for name, value in environment["versions"].items()},
        settings={name: str(value) for name, value in environment["settings"].items()},
        notes=tuple(record["notes"]),
        seconds=record["seconds"],
    )


def _require_sound(link: MeasuredLink, record: dict[str, Any], origin: str) -> None:
    """What no form of a single value tells."""
    if link.ranks % link.nodes:
        raise InputError(Fault(f"{origin}: environment.nodes", f"{link.nodes} of {link.ranks} ranks", "equally many ranks on each"))
    if any(not sample.seconds for sample in link.samples):
        raise InputError(Fault(f"{origin}: samples", "a size without a call", "a time of each call"))
    for name, samples in groupby(link.samples, key=lambda sample: sample.collective):
        sizes = [sample.size_bytes for sample in samples]
        if sizes != [sample.size_bytes for sample in link.of(name)] or any(a >= b for a, b in pairwise(sizes)):
            raise InputError(Fault(f"{origin}: samples", f"sizes of {name} twice, or not in their order", "each once, ascending"))
    for each in record["summary"]:
        name = each.get("collective")
        fit = link.fit(name) if name in LINK_COLLECTIVES else None
        come_to = {"sizes": [sample.figures for sample in link.of(str(name))], "fit": None if fit is None else fit._asdict()}
        for key, value in come_to.items():
            if not alike(value, each.get(key), _RELATIVE):
                where = f"{origin}: summary, {key} of {describe(name)}"
                raise InputError(Fault(where, "other figures than its samples come to", "those of its samples", CHANGED))
