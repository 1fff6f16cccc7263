"""Records of probes and links as JSON: a list, two side by side, and whether files are records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fullstep import __version__
from fullstep.calibration.records import ComparedRecords, figures_of, link_figures_of, program_words
from fullstep.errors import Fault
from fullstep.ledger.link import MeasuredLink
from fullstep.ledger.probe import Probe
from fullstep.report.json import finite

Record = Probe | MeasuredLink


def list_as_dict(where: str, records: Sequence[tuple[str, Record]], bad: Sequence[tuple[str, Sequence[Fault]]]) -> dict[str, Any]:
    """Each record in short."""
    return {
        **_head(),
        "where": where,
        "records": [{"file": name, **_in_short(record)} for name, record in records],
        "unreadable": [{"file": name, "faults": _faults(faults)} for name, faults in bad],
    }


def compared_as_dict(names: tuple[str, str], records: tuple[Record, Record], found: ComparedRecords) -> dict[str, Any]:
    """Figure by figure in the unit that each names; the difference is a share of the first one."""
    sides = {side: {"file": name, **_in_short(record)} for side, name, record in zip(("first", "second"), names, records, strict=True)}
    figures = [{**figure._asdict(), "second_over_first_less_one": figure.difference} for figure in found.figures]
    differing = [{"key": key, "first": first, "second": second} for key, first, second in found.differing]
    said: dict[str, Any] = finite({**_head(), **sides, "figures": figures, "differing": differing})
    return said


def validated_as_dict(checked: Sequence[tuple[str, Record | None, Sequence[Fault]]]) -> dict[str, Any]:
    """Each file with what is wrong with it."""
    files = [{"file": name, "is_sound": record is not None, "faults": _faults(faults)} for name, record, faults in checked]
    return {**_head(), "are_all_sound": bool(checked) and all(each["is_sound"] for each in files), "files": files}


def _head() -> dict[str, Any]:
    return {"schema": 1, "fullstep": __version__, "evidence": "measured"}


def _in_short(record: Record) -> dict[str, Any]:
    return _probe_in_short(record) if isinstance(record, Probe) else _link_in_short(record)


def _link_in_short(link: MeasuredLink) -> dict[str, Any]:
    return {
        "kind": "fullstep link",
        "made": link.made,
        "device": link.device,
        "backend": link.backend,
        "ranks": link.ranks,
        "nodes": link.nodes,
        "network_gbit_s": link.network_gbit_s,
        "figures": [figure._asdict() for figure in link_figures_of(link)],
    }


def _probe_in_short(probe: Probe) -> dict[str, Any]:
    return {
        "kind": "fullstep probe",
        "made": probe.made,
        "model": probe.model,
        "program": program_words(probe),
        "outcome": probe.outcome,
        "world_size": probe.world_size,
        "devices": list(dict.fromkeys(rank.device for rank in probe.ranks)),
        "figures": [figure._asdict() for figure in figures_of(probe)],
    }


def _faults(faults: Sequence[Fault]) -> list[dict[str, str]]:
    return [{"where": each.where, "found": each.found, "allowed": each.allowed, "remedy": each.remedy} for each in faults]
