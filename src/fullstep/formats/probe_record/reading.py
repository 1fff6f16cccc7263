"""A record from outside: read as data, strictly, and only what its table says; a changed one is noticed by its digest."""

from __future__ import annotations

import json
from typing import Any

from fullstep.errors import Fault, InputError, KeyTwiceError, unique_keys
from fullstep.formats.probe_record.link_reading import link_from_record
from fullstep.formats.probe_record.link_schema import LINK_KIND, LINK_SCHEMA
from fullstep.formats.probe_record.schema import KIND, RECORD, SCHEMA
from fullstep.formats.probe_record.wholeness import CHANGED, alike, require_whole
from fullstep.formats.probe_record.writing import LARGEST_BYTES, summary_of
from fullstep.job.refusal import describe
from fullstep.ledger.link import MeasuredLink
from fullstep.ledger.probe import OutOfMemory, Overlap, Probe, ProbedRank, StepSample, Stretch

_ANOTHER = "Is this a record of fullstep probe or fullstep link?"
_RELATIVE = 1e-9
"""relative, of derived figures: the order of a sum may differ"""


def probe_from_bytes(raw: bytes, origin: str) -> Probe:
    """The probe in a record's bytes.

    Args:
        raw: of the file
        origin: its name, for messages

    Raises:
        InputError: it is too large, no JSON, of another kind or a newer schema, changed, or what it says is not allowed
    """
    return probe_from_record(_tree(raw, origin), origin)


def record_from_bytes(raw: bytes, origin: str) -> Probe | MeasuredLink:
    """What a record's bytes hold, be it of a probe or of links.

    Raises:
        InputError: as :func:`probe_from_bytes` says
    """
    tree = _tree(raw, origin)
    if isinstance(tree, dict) and tree.get("kind") == LINK_KIND:
        return link_from_record(_of_this_schema(tree, origin, LINK_KIND, LINK_SCHEMA), origin)
    return probe_from_record(tree, origin)


def _tree(raw: bytes, origin: str) -> object:
    """JSON as it stands there.

    Raises:
        InputError: it is too large, or no JSON
    """
    if len(raw) > LARGEST_BYTES:
        raise InputError(Fault(origin, f"more than {LARGEST_BYTES:,} bytes", f"at most {LARGEST_BYTES:,}", _ANOTHER))
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=unique_keys, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InputError(Fault(origin, f"byte {error.start} is not UTF-8", "JSON in UTF-8", _ANOTHER)) from None
    except KeyTwiceError as error:
        raise InputError(Fault(origin, str(error), "each key once")) from None
    except RecursionError:
        raise InputError(Fault(origin, "lists and tables too deep", "a record of fullstep probe", _ANOTHER)) from None
    except ValueError as error:  # a number of thousands of digits among them
        raise InputError(Fault(origin, f"no JSON: {str(error)[:120]}", "a JSON object", _ANOTHER)) from None


def probe_from_record(tree: object, origin: str) -> Probe:
    """The probe in a record that is parsed already.

    Raises:
        InputError: as :func:`probe_from_bytes` says
    """
    record = _of_this_schema(tree, origin, KIND, SCHEMA)
    require_whole(record, RECORD, origin)
    probe = _probe(record)
    _require_sound(probe, record, origin)
    return probe


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _of_this_schema(tree: object, origin: str, kind: str, allowed: int) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise InputError(Fault(origin, describe(tree), f'a table whose kind is "{kind}"', _ANOTHER))
    if tree.get("kind") != kind:
        raise InputError(Fault(f"{origin}: kind", describe(tree.get("kind")), f'"{kind}"', _ANOTHER))
    schema = tree.get("schema")
    if type(schema) is not int or schema != allowed:
        newer = type(schema) is int and schema > allowed
        remedy = "A newer fullstep made it: install that." if newer else _ANOTHER
        raise InputError(Fault(f"{origin}: schema", describe(schema), str(allowed), remedy))
    return tree


def _require_sound(probe: Probe, record: dict[str, Any], origin: str) -> None:
    """What no form of a single value tells."""
    if (probe.outcome == "out_of_memory") != (probe.out_of_memory is not None):
        found = f'"{probe.outcome}" {"with" if probe.out_of_memory is not None else "without"} out_of_memory'
        raise InputError(Fault(f"{origin}: outcome.what", found, "both of them or none"))
    parts = [(rank.rank, rank.device) for rank in probe.ranks]
    if len(set(parts)) != len(parts) or any(rank.rank >= probe.world_size for rank in probe.ranks):
        found = "a rank twice on the same device, or one beyond world_size"
        raise InputError(Fault(f"{origin}: ranks", found, f"each of 0 to {probe.world_size - 1}, at most once for each of its devices"))
    for name, value in summary_of(probe).items():
        if not alike(value, record["summary"][name], _RELATIVE):
            found, allowed = describe(record["summary"][name]), f"{_said(value)}, as its samples come to"
            raise InputError(Fault(f"{origin}: summary.{name}", found, allowed, CHANGED))


def _said(value: Any) -> str:
    return ", ".join(f"{name} {each:g}" for name, each in value.items()) if isinstance(value, dict) else describe(value)


def _probe(record: dict[str, Any]) -> Probe:
    outcome, model, ran_out = record["outcome"], record["model"], record["out_of_memory"]
    return Probe(
        outcome=outcome["what"],
        reason=outcome["reason"],
        made=record["made"],
        command=tuple(record["command"]),
        seed=record["seed"],
        model=model["name"],
        parameters=model["parameters"],
        trainable_parameters=model["trainable_parameters"],
        worksheet=record["worksheet"],
        environment=record["environment"],
        ranks=tuple(_rank(each) for each in record["ranks"]),
        world_size=record["world_size"],
        out_of_memory=None if ran_out is None else OutOfMemory(**ran_out),
        notes=tuple(record["notes"]),
        profile=record["profile"],
    )


def _rank(tree: dict[str, Any]) -> ProbedRank:
    return ProbedRank(
        rank=tree["rank"],
        device=tree["device"],
        memory=tuple(Stretch(*row) for row in tree["memory"]["rows"]),
        steps=tuple(StepSample(*row) for row in tree["steps"]["rows"]),
        host_peak_bytes=tree["host_peak_bytes"],
        overlap=tuple(Overlap(*row) for row in tree["overlap"]["rows"]),
        evaluation_seconds=tree["evaluation_seconds"],
        save_seconds=tree["save_seconds"],
        save_bytes=tree["save_bytes"],
    )
