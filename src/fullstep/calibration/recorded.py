"""What a record may be used for: the same worksheet, a near one, or nothing, and why.

A record comes from outside. Its worksheet is checked like any other; no file that it names is opened, no model of it is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, NamedTuple

from fullstep.errors import InputError
from fullstep.hardware import Card
from fullstep.hardware.catalogue import cards_named
from fullstep.job import Job, Settings, Worksheet, complete, edit, settings_of, worksheet_from_mapping
from fullstep.ledger.probe import Probe
from fullstep.models import bundled_models, model_config

_SECTIONS = ("method", "precision", "optimizer", "batch", "step", "layout")
"""those on which memory and time of a step depend; that of an evaluation where there is one"""
_LEFT_OUT = ("measured", "data", "plan", "goal")
"""sections that say nothing of a step"""
_NAMES_ALONE = ("_name_or_path", "transformers_version", "architectures", "torch_dtype", "dtype", "use_cache")
"""keys of a model's config that change nothing of a step"""
_OUTCOMES = {
    "out_of_memory": "it ran out of memory", "rank_died": "a rank of it died", "hung": "it hung", "stopped": "it was stopped",
}  # fmt: skip
_MOST_NAMED = 4


class Recorded(NamedTuple):
    """A record that measured a worksheet which the formulas know."""

    name: str
    """of its file"""
    probe: Probe
    job: Job
    """its own, on the card on which it ran"""
    on_processors: bool


class Match(NamedTuple):
    """What a record is to a worksheet."""

    kind: Literal["same", "near", "link", "refused"]
    why: str
    """in words"""


def recorded(name: str, probe: Probe, worksheet: Worksheet) -> Recorded | str:
    """The record with its own job; why it cannot be used, in words, where it has none.

    Args:
        name: of its file
        probe: what it says
        worksheet: of the one who asks: a model of that name may be looked up, as it is looked up for this worksheet anyway
    """
    why = _why_not_whole(probe) or _why_not_known(probe, worksheet)
    if why:
        return why
    try:
        sheet = _sheet(probe, name)
        device = probe.ranks[0].device
        if device != "cpu":
            card = _card(device, sheet)
            if isinstance(card, str):
                return card
            sheet = edit(sheet, {"machine.gpu": card.key, "machine.gpu_memory_gib": None})
        job = complete(sheet)
    except InputError as error:
        return f"its worksheet: {error.faults[0]}"
    if job.machine.gpus * job.machine.nodes != probe.world_size:
        return f"its worksheet has {job.machine.gpus * job.machine.nodes} GPUs, and {probe.world_size} ranks ran"
    return Recorded(name, probe, job, device == "cpu")


def settings_recorded(probe: Probe) -> Settings | None:
    """What a probe ran, defaults filled in; None: a command, or a model that does not come along."""
    if _why_not_known(probe, Worksheet()):
        return None
    try:
        return settings_of(_sheet(probe, "the record"))
    except InputError:
        return None


def _sheet(probe: Probe, name: str) -> Worksheet:
    """
    Raises:
        InputError: it is none
    """
    return worksheet_from_mapping({section: keys for section, keys in (probe.worksheet or {}).items() if section not in _LEFT_OUT}, name)


def match(record: Recorded, job: Job) -> Match:
    """same: every key on which a step depends is equal; near: same card, model family, kind of method and strategy; else refused.

    A record of processors says nothing of a card, but for what its very program allocates.
    """
    here, there = job.machine, record.job.machine
    if record.on_processors:
        differing = _differing(record.job, job)
        if differing:
            return Match("refused", f"it ran on processors, and another program: {_named(differing)}")
        if record.job.layout.is_fsdp:
            return Match("refused", "it ran over gloo, whose reduce-scatter holds buffers that no GPU has, so that FSDP's peaks are others")
        return Match("same", "the same program on processors: what it allocated counts, its times and other counters do not")
    if here.card is None:
        return Match("refused", f"it ran on {_card_name(there.card)}, and the worksheet names no GPU")
    if there.card is None or there.card.key != here.card.key:
        return Match("refused", f"it ran on {_card_name(there.card)}, not on {here.card.key}")
    apart = [  # before every key is compared: most records differ by these
        f"{what} {one} there, {other} here"
        for what, one, other in (
            ("model family", record.job.shape.model_type, job.shape.model_type), ("method.kind", record.job.method.kind, job.method.kind),
            ("layout.strategy", record.job.layout.strategy, job.layout.strategy),
        ) if one != other
    ]  # fmt: skip
    if apart:
        return Match("refused", "; ".join(apart))
    differing = _differing(record.job, job) + _other_links(record.job, job)
    if not differing and job.evaluation.happens and not _evaluated(record.probe):
        differing = ["it ran no evaluation, of which the worksheet has some"]
    if not differing:
        return Match("same", "the same worksheet on the same card")
    return Match("near", f"same card, model family, method and layout; different: {_named(differing)}")


def _why_not_whole(probe: Probe) -> str:
    if probe.outcome != "completed":
        ran_out = probe.out_of_memory
        least = "" if ran_out is None or ran_out.enough_bytes is None else f": at least {ran_out.enough_bytes / 2**30:.1f} GiB are needed"
        return f"{_OUTCOMES[probe.outcome]}{least}"
    if len(probe.ranks) != probe.world_size:
        return f"only {len(probe.ranks)} of {probe.world_size} ranks left a record"
    devices = {rank.device for rank in probe.ranks}
    if len(devices) != 1:
        return f"its ranks ran on {len(devices)} kinds of devices"
    counted = all(any(each.allocated_peak_bytes for each in rank.memory) for rank in probe.ranks)
    return "" if counted else "a rank of it counted no memory"


def _why_not_known(probe: Probe, worksheet: Worksheet) -> str:
    """Why its model must not be looked for."""
    if probe.worksheet is None:
        return "it measured a command, not a worksheet"
    model = probe.worksheet.get("model")
    if not isinstance(model, Mapping):
        return "its worksheet names no model"
    config, name = model.get("config"), model.get("name")
    if isinstance(config, Mapping):
        return ""
    if config is not None:
        return "its model is a file of the machine that made it, which is not opened here"
    if not isinstance(name, str) or (name not in {each.name for each in bundled_models()} and name != worksheet.stated("model.name")):
        return "its model does not come along with fullstep, and is not looked up for a record"
    return ""


def _card(device: str, sheet: Worksheet) -> Card | str:
    """The card that the driver's name means; where it means several, the one that the worksheet names."""
    found = cards_named(device)
    stated = cards_named(str(sheet.stated("machine.gpu") or ""))
    both = [card for card in found if card.key in {each.key for each in stated}] if len(found) > 1 else list(found)
    if len(both) == 1:
        return both[0]
    return f"its device, {device[:60]}, is {'sold in several forms' if found else 'no card of the catalogue'}"


def _card_name(card: Card | None) -> str:
    return "an unknown card" if card is None else card.key


def _differing(there: Job, here: Job) -> list[str]:
    """Keys that are not the same in both, with both values."""
    found = []
    if _config(there) != _config(here):
        found.append(f"model {there.shape.name} there, {here.shape.name} here")
    for section in (*_SECTIONS, "evaluation") if here.evaluation.happens and there.evaluation.happens else _SECTIONS:
        one, other = getattr(there, section), getattr(here, section)
        for name in (each.name for each in fields(one)):
            if (a := getattr(one, name)) != (b := getattr(other, name)):
                found.append(f"{section}.{name} {_said(a)} there, {_said(b)} here")
    for name in ("gpus", "nodes"):
        if (a := getattr(there.machine, name)) != (b := getattr(here.machine, name)):
            found.append(f"machine.{name} {a} there, {b} here")
    return found


def _other_links(there: Job, here: Job) -> list[str]:
    """Keys of what joins GPUs and nodes; a network counts where there are several nodes."""
    names = ("link", "network_gbit_s", "rdma") if here.machine.nodes > 1 else ("link",)
    pairs = ((name, getattr(there.machine, name), getattr(here.machine, name)) for name in names)
    return [f"machine.{name} {_said(one)} there, {_said(other)} here" for name, one, other in pairs if one != other]


def _evaluated(probe: Probe) -> bool:
    return any(each.phase == "evaluation" for rank in probe.ranks for each in rank.memory)


def _config(job: Job) -> dict[str, Any]:
    config, _ = model_config(job.worksheet.section("model"))
    return {name: value for name, value in config.items() if name not in _NAMES_ALONE}


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:60]


def _named(differing: list[str]) -> str:
    rest = len(differing) - _MOST_NAMED
    return ", ".join(differing[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
