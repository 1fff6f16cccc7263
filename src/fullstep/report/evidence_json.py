"""Records of probes as JSON: a list, two side by side, and whether files are records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fullstep import __version__
from fullstep.calibration.records import ComparedProbes, figures_of
from fullstep.errors import Fault
from fullstep.ledger.probe import Probe
from fullstep.report.json import finite


def list_as_dict(where: str, records: Sequence[tuple[str, Probe]], bad: Sequence[tuple[str, Sequence[Fault]]]) -> dict[str, Any]:
    """Each record in short."""
    return {
        **_head(),
        "where": where,
        "records": [{"file": name, **_in_short(probe)} for name, probe in records],
        "unreadable": [{"file": name, "faults": _faults(faults)} for name, faults in bad],
    }


def compared_as_dict(names: tuple[str, str], probes: tuple[Probe, Probe], found: ComparedProbes) -> dict[str, Any]:
    """Figure by figure in the unit that each names; the difference is a share of the first one."""
    sides = {side: {"file": name, **_in_short(probe)} for side, name, probe in zip(("first", "second"), names, probes, strict=True)}
    figures = [{**figure._asdict(), "second_over_first_less_one": figure.difference} for figure in found.figures]
    differing = [{"key": key, "first": first, "second": second} for key, first, second in found.differing]
    said: dict[str, Any] = finite({**_head(), **sides, "figures": figures, "differing": differing})
    return said


def validated_as_dict(checked: Sequence[tuple[str, Probe | None, Sequence[Fault]]]) -> dict[str, Any]:
    """Each file with what is wrong with it."""
    files = [{"file": name, "is_sound": probe is not None, "faults": _faults(faults)} for name, probe, faults in checked]
    return {**_head(), "are_all_sound": bool(checked) and all(each["is_sound"] for each in files), "files": files}


def _head() -> dict[str, Any]:
    return {"schema": 1, "fullstep": __version__, "evidence": "measured"}


def _in_short(probe: Probe) -> dict[str, Any]:
    return {
        "made": probe.made,
        "model": probe.model,
        "outcome": probe.outcome,
        "world_size": probe.world_size,
        "devices": list(dict.fromkeys(rank.device for rank in probe.ranks)),
        "figures": [figure._asdict() for figure in figures_of(probe)],
    }


def _faults(faults: Sequence[Fault]) -> list[dict[str, str]]:
    return [{"where": each.where, "found": each.found, "allowed": each.allowed, "remedy": each.remedy} for each in faults]
