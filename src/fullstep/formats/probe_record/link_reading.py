"""A record of links from outside: read as data, strictly; what it comes to is worked out from its samples."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.formats.probe_record.forms import Mismatch
from fullstep.formats.probe_record.link_schema import LINK_RECORD
from fullstep.formats.probe_record.writing import digest_of
from fullstep.job.refusal import describe
from fullstep.ledger.link import LINK_COLLECTIVES, LinkSample, MeasuredLink

CHANGED = "It was changed after it was made: take the original."
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
    try:
        LINK_RECORD.check(record)
    except Mismatch as mismatch:
        where = f"{origin}: {mismatch.where}" if mismatch.where else origin
        raise InputError(Fault(where, mismatch.found, mismatch.allowed)) from None
    require_digest(record, origin)
    link = _link(record)
    _require_sound(link, record, origin)
    return link


def require_digest(record: dict[str, Any], origin: str) -> None:
    """Returns where the record is as it was written.

    Raises:
        InputError: it is not
    """
    if digest_of({name: value for name, value in record.items() if name != "sha256"}) != record["sha256"]:
        found, allowed = "not the digest of what the file holds", "a record as it was written"
        raise InputError(Fault(f"{origin}: sha256", found, allowed, CHANGED))


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


def alike(one: Any, other: Any, tolerance: float) -> bool:
    """The same figures, under the same names and in the same order.

    >>> alike({"low": 1.0, "sizes": [2, None]}, {"low": 1.001, "sizes": [2, None]}, 0.01), alike({"low": 1.0}, {}, 0.01)
    (True, False)

    Args:
        one: table, list, number or anything else
        other: likewise
        tolerance: of numbers, relative to the larger one
    """
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(alike(one[name], other[name], tolerance) for name in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(alike(*pair, tolerance) for pair in zip(one, other, strict=True))
    if type(one) in (int, float) and type(other) in (int, float):
        return math.isclose(one, other, rel_tol=tolerance)
    return bool(one == other)
