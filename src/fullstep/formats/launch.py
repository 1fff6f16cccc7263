"""All that a launch file needs, whichever tool it is for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.formats.commands import DEFAULT_COMMAND, DEFAULT_SETUP, PROBE_SETUP, finished_file_of, measured_command
from fullstep.job import Job, worksheet_to_toml
from fullstep.plan.usage import stored

_DISK_STEP_GB = 10
_LONGEST_NAME = 30
"""dstack allows 41 letters, and what belongs to a run is named after it"""
_LONGEST_TEXT = 4000
_NEEDS_FULLSTEP = "Needs fullstep with its extra lab on every node: the setup line installs it from its checkout, or state yours by --setup"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


class LaunchFile(NamedTuple):
    """A file that a tool reads."""

    name: str
    text: str
    loses_checkpoints: bool = False
    """they lie on the machine alone, and go with it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A job as a launch tool sees it."""

    name: str
    """letters, digits and hyphens, which every tool allows"""
    nodes: int
    gpus: int
    """per node"""
    card: str
    """key of the catalogue"""
    vendor: str
    interruptible: bool
    disk_gb: int
    """of one node, for all of it"""
    disk_note: str
    checkpoints_gb: int
    """of ``disk_gb``: kept checkpoints, the one that is being written, and the export"""
    checkpoints: str | None
    """a bucket, a volume or a folder, as its tool takes it; None: not said"""
    network_gbit_s: float | None
    """line rate and direction that a node needs; None: not known"""
    host_gib: int | None
    """host memory that a node needs; None: not known"""
    cpu_cores: int | None
    """of a node; None: not known"""
    provider: str | None
    region: str | None
    instance: str | None
    price_per_hour: str | None
    """of one node, US dollars, a decimal number"""
    command: str
    """a shell line: what stands behind torchrun"""
    measure: str | None
    """the same for a few steps; None: no short step"""
    setup: str
    """a shell line"""
    is_placeholder: bool
    """the command is only an example"""
    probe: str | None
    """a shell line: options of ``fullstep probe``, which runs instead of the command; None: the command runs"""
    max_hours: float | None
    keep: int
    save_minutes: float
    finished_file: str | None
    """what the framework writes last into a checkpoint; None: not known"""
    notes: tuple[str, ...]
    """lines for the head of the file"""
    worksheet: str
    """TOML"""

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus


def launch_from(
    job: Job,
    *,
    command: str | None = None,
    measure: str | None = None,
    setup: str | None = None,
    interruptible: bool = False,
    provider: str | None = None,
    region: str | None = None,
    instance: str | None = None,
    price_per_hour: str | None = None,
    checkpoints: str | None = None,
    max_hours: float | None = None,
    network_gbit_s: float | None = None,
    host_gib: int | None = None,
    notes: tuple[str, ...] = (),
    probe: str | None = None,
) -> Launch:
    """What a completed job needs to be launched.

    Args:
        job: complete, with a card
        command: a shell line, what stands behind torchrun; None: an example that says it is one
        measure: the same for a few steps; from ``-`` on: arguments for the command; ``none``: no short step; None: by the framework
        setup: a shell line that installs what the command needs
        interruptible: on capacity that the provider may take back
        provider, region, instance: where an offer is chosen
        price_per_hour: of one node [USD]
        checkpoints: bucket, volume or folder, as the tool takes it
        max_hours: after which the tool stops the run; None: ``goal.finish_within_hours``, where it is stated
        network_gbit_s: line rate per node and direction that the layout needs
        host_gib: host memory that a node needs
        notes: lines for the head of the file
        probe: options of ``fullstep probe``, which is to run instead of a command; None: the command

    Raises:
        InputError: the worksheet names no card, or a text is not allowed; all faults together
    """
    words = {"--provider": provider, "--region": region, "--instance": instance}
    lines = {"--command": command, "--measure": measure, "--setup": setup, "--checkpoints": checkpoints,
             "--probe-options": probe or None}  # fmt: skip
    faults = _faults(words, lines, price_per_hour)
    card, machine, run = job.machine.card, job.machine, command.strip() if command else DEFAULT_COMMAND
    if card is None:
        remedy = "Name a card, or take options[i].worksheet of `fullstep plan --json`."
        faults.append(Fault(job.worksheet.where("machine.gpu"), "not stated", "a card of the catalogue, like H100-SXM", remedy))
    if faults or card is None:
        raise InputError(*faults)
    checkpoints_gb, disk_gb, disk_note = _disk(job)
    short = None if probe is not None else measured_command(run, measure, job.step.framework)
    warnings = (_NEEDS_FULLSTEP,) if probe is not None else _warnings(run, short, measure)
    return Launch(
        name=_name(job, "" if probe is None else "-probe"), nodes=machine.nodes, gpus=machine.gpus, card=card.key, vendor=card.vendor,
        interruptible=interruptible,
        disk_gb=disk_gb, disk_note=disk_note, checkpoints_gb=checkpoints_gb, checkpoints=checkpoints,
        network_gbit_s=network_gbit_s, host_gib=host_gib, cpu_cores=machine.cpu_cores,
        provider=provider.lower() if provider else None, region=region, instance=instance, price_per_hour=price_per_hour,
        command=run, measure=short, setup=(setup or (DEFAULT_SETUP if probe is None else PROBE_SETUP)).strip(),
        is_placeholder=command is None, probe=probe, max_hours=job.goal.finish_within_hours if max_hours is None else max_hours,
        keep=job.checkpoint.keep, save_minutes=job.checkpoint.lose_at_most_minutes,
        finished_file=finished_file_of(job.step.framework), notes=(*notes, *warnings),
        worksheet=worksheet_to_toml(job.worksheet),
    )  # fmt: skip


def _warnings(command: str, short: str | None, measure: str | None) -> tuple[str, ...]:
    """What the user should know of their own command."""
    found = []
    if short is None and (measure or "").strip() != "none":
        found.append("Beware: no short step. The command line is more than one command: state the short one by --measure")
    if "CHECKPOINT_DIR" not in command and "RESUME_FROM" not in command:
        found.append("Beware: the command names neither CHECKPOINT_DIR nor RESUME_FROM: does it find its last checkpoint by itself?")
    return tuple(found)


def _faults(words: Mapping[str, str | None], lines: Mapping[str, str | None], price_per_hour: str | None) -> list[Fault]:
    faults = [fault for flag, text in words.items() if text is not None for fault in _word_faults(flag, text)]
    faults += [fault for flag, text in lines.items() if text is not None for fault in _line_faults(flag, text)]
    return faults if price_per_hour is None else faults + _price_faults(price_per_hour)


def _name(job: Job, suffix: str = "") -> str:
    """The model's last name, the method and what is added: letters, digits and single hyphens, a letter first."""
    model = str(job.worksheet.stated("model.name") or "model").rstrip("/").rpartition("/")[2]
    slug = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    method = job.method.kind.replace("_", "-") + suffix
    slug = slug[: _LONGEST_NAME - len(method) - 2].strip("-") or "model"
    return f"{slug}-{method}" if slug[0].isalpha() else f"m{slug}-{method}"


def _disk(job: Job) -> tuple[int, int, str]:
    """(checkpoints and export [GB], all of it [GB], how it adds up). Rounded up; as if one node held all of it."""
    disk = stored(job)
    note = (
        f"{disk.weights:.0f} GB of weights, {disk.kept} checkpoints of {disk.checkpoint:.1f} GB (the one being written among them), "
        f"{disk.result:.1f} GB of export, {disk.environment:.0f} GB for the environment and the data"
    )
    return _rounded_up(disk.kept * disk.checkpoint + disk.result), _rounded_up(disk.total), note


def _rounded_up(gigabytes: float) -> int:
    """To the next ten.

    >>> _rounded_up(0.3), _rounded_up(351.0)
    (10, 360)
    """
    return max(1, ceil(gigabytes / _DISK_STEP_GB)) * _DISK_STEP_GB


def _word_faults(flag: str, text: str) -> list[Fault]:
    if _WORD.match(text):
        return []
    return [Fault(flag, f'"{text[:60]}"', "letters, digits, dots, hyphens and underscores, a letter or digit first")]


def _line_faults(flag: str, text: str) -> list[Fault]:
    if not text.strip() or len(text) > _LONGEST_TEXT:
        return [Fault(flag, f"{len(text)} characters" if text.strip() else "nothing", f"a line of up to {_LONGEST_TEXT} characters")]
    if not text.isprintable():
        remedy = "Several commands can be joined by &&, or put into a script."
        return [Fault(flag, f'"{text[:60]}"', "one line without control characters", remedy)]
    try:
        shlex.split(text)
    except ValueError as error:
        return [Fault(flag, f'"{text[:60]}": {str(error).lower()}', "a line whose quotes are closed")]
    return []


def _price_faults(text: str) -> list[Fault]:
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal(0)
    if price.is_finite() and 0 < price < 10**9:
        return []
    return [Fault("--price-per-hour", f'"{text[:60]}"', "US dollars for an hour of one node, above 0, like 55.04")]
