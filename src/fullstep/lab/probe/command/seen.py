"""What the processes of a training left, read back: damaged lines are passed over, as a kill may have cut the last one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fullstep.lab.probe.command.sound import is_sound
from fullstep.ledger.probe import OutOfMemory, ProbedRank, StepSample, Stretch
from fullstep.probing.lines import SUFFIX

_LEAST_SECONDS = 1e-9
_MOST_BYTES = 256 * 2**20


@dataclass(slots=True)
class Seen:
    """One process that made optimizer steps, or came to grief before."""

    head: dict[str, Any]
    steps: list[dict[str, Any]] = field(default_factory=list)
    beside: list[dict[str, Any]] = field(default_factory=list)
    """load, evaluation, save: where a callback told of them"""
    ran_out: list[dict[str, Any]] = field(default_factory=list)
    """since anything was made"""
    caught: int = 0
    """times that memory ran out and the program went on"""
    counted: list[list[int]] = field(default_factory=list)
    """allocated peak and end of each stretch on processors"""
    end: str = ""
    """by itself, enough; empty: it was killed, or left without a word"""
    error: str = ""
    """that ended it"""
    of_memory: bool = False
    """that error, or one that led to it"""
    failed_at: float = 0.0
    """by the machine's clock [s]"""
    fault: str = ""
    """of the watch itself"""
    host_peak_bytes: int | None = None

    @property
    def rank(self) -> int:
        """As the launcher counts them."""
        return int(self.head.get("rank", 0))

    @property
    def last_step(self) -> int:
        """0: none is over."""
        return int(self.steps[-1]["step"]) if self.steps else 0

    @property
    def has_no_cycle(self) -> bool:
        """Calls of optimizers come in another order now and then. The last step does not count: it may not have come to its end."""
        return any(line.get("alike") is False for line in self.steps[:-1])


def read_seen(folder: Path) -> list[Seen]:
    """Of all processes, by rank; of several of one rank (a launcher's second try) the one with most steps comes first.

    A launcher, which makes no step, is left out where a rank of its number made some.
    """
    found = [each for path in sorted(folder.glob(f"*{SUFFIX}")) if path.is_file() and (each := _read(path)) is not None]
    worked = {each.rank for each in found if each.steps or each.ran_out}
    kept = [each for each in found if each.steps or each.ran_out or each.rank not in worked]
    return sorted(kept, key=lambda each: (each.rank, -len(each.steps)))


def faults_in(folder: Path) -> list[str]:
    """Of import hooks that could not begin to watch."""
    return [path.read_text(encoding="utf-8", errors="replace")[:500] for path in sorted(folder.glob("*.fault"))]


def _read(path: Path) -> Seen | None:
    seen: Seen | None = None
    with path.open(encoding="ascii", errors="replace") as lines:
        for text in lines.read(_MOST_BYTES).splitlines():
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and is_sound(line):
                seen = seen or Seen(line)
                _enter(seen, line)
    return seen


def _enter(seen: Seen, line: dict[str, Any]) -> None:
    if "step" in line and "seconds" in line:
        seen.steps.append(line)
        _survive(seen, line["step"])
    elif "beside" in line:
        seen.beside.append(line)
    elif "out_of_memory" in line:
        seen.ran_out.append(line)
    elif "survived" in line:
        _survive(seen, math.inf)
    elif "counted" in line:
        seen.counted = line["counted"]
    seen.end = str(line.get("end", seen.end))
    seen.error = str(line.get("error", seen.error))
    seen.of_memory = line.get("of_memory", seen.of_memory) is True
    seen.failed_at = float(line.get("at", seen.failed_at))
    seen.fault = str(line.get("fault", seen.fault))
    if isinstance(line.get("host"), int):
        seen.host_peak_bytes = line["host"]


def _survive(seen: Seen, step: float) -> None:
    """What ran out up to this step."""
    past = [each for each in seen.ran_out if each["step"] <= step]
    seen.caught += len(past)
    seen.ran_out = [each for each in seen.ran_out if each not in past]


def first_failed(seen: Iterable[Seen]) -> Seen | None:
    """Of those that an error ended, the first: it takes others with it. None: no error ended one."""
    return min((each for each in seen if each.error), key=lambda each: each.failed_at, default=None)


def ran_out_of(seen: Seen) -> OutOfMemory | None:
    """Where its memory ran out at last; None: it did not, or another error ended it. What knows how much was there outranks the rest."""
    if not seen.ran_out or (seen.error and not seen.of_memory):
        return None
    known = [line for line in seen.ran_out if line["out_of_memory"]["allocated_bytes"] is not None]
    line = (known or seen.ran_out)[-1]
    return OutOfMemory(seen.rank, line["step"], line["phase"], **line["out_of_memory"])


def ranks_of(seen: Iterable[Seen]) -> tuple[ProbedRank, ...]:
    """The samples of each rank, once for each of its devices."""
    found: dict[int, Seen] = {}
    for each in seen:
        found.setdefault(each.rank, each)
    return tuple(part for each in found.values() for part in _of_devices(each))


def _of_devices(seen: Seen) -> list[ProbedRank]:
    memory = _memory(seen)
    devices = seen.head.get("devices", {})
    names = list(memory) or list(devices)[:1] or ["cpu"]
    samples, saves = _samples(seen.steps), [line["seconds"] for line in seen.beside if line["beside"] == "save"]
    return [
        ProbedRank(
            rank=seen.rank, device=_shown(name, devices, len(names)), memory=tuple(memory.get(name, ())), steps=samples,
            host_peak_bytes=seen.host_peak_bytes, save_seconds=saves[-1] if saves else None,
        )
        for name in names
    ]  # fmt: skip


def _shown(name: str, devices: dict[str, Any], count: int) -> str:
    """What the driver calls it; its number before, where this rank has several."""
    card = str(devices.get(name, {}).get("name", name))
    return f"{name} {card}" if count > 1 else card


def _samples(steps: Sequence[dict[str, Any]]) -> tuple[StepSample, ...]:
    """Without the first step, which holds loading; nor the second one, in which much is done for the first time, where there are others."""
    timed = [line for line in steps if line["seconds"] is not None]
    timed = [line for line in timed if line["step"] > 2] or timed
    return tuple(StepSample(line["step"], max(line["seconds"], _LEAST_SECONDS), line["data"] or 0.0, None) for line in timed)


def _memory(seen: Seen) -> dict[str, list[Stretch]]:
    """By device. Of the micro-batches after the second one, which is as they are, the highest of each phase is kept."""
    found: dict[str, dict[tuple[int, int, str], Stretch]] = {}
    for line in (*seen.beside, *seen.steps):
        for micro_batch, phase, figures in line.get("memory", ()):
            for device, numbers in figures.items():
                told = [*seen.counted[numbers[0]], None, None] if device == "cpu" and numbers[0] < len(seen.counted) else numbers
                if len(told) < 4:
                    continue
                key = (line.get("step", 0), min(micro_batch, 2), phase)
                new, rows = Stretch(*key, *told), found.setdefault(device, {})
                rows[key] = _higher(rows[key], new) if key in rows else new
    return {device: list(rows.values()) for device, rows in found.items()}


def _higher(one: Stretch, other: Stretch) -> Stretch:
    return other if other.allocated_peak_bytes > one.allocated_peak_bytes else one
