"""A drill from its first leg to its verdict."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fullstep.errors.stops import stoppable, stops_wait
from fullstep.job import Settings
from fullstep.lab.drill.front import judge
from fullstep.lab.drill.front.failed import DrillFailedError
from fullstep.lab.drill.front.place import DrillFolder
from fullstep.lab.drill.front.seen import Seen, read_records, seen_of
from fullstep.lab.drill.front.times import export_of, load_of, raw_of, restart_of, save_of, staging_of, usual_step_seconds
from fullstep.lab.drill.leg import Leg, Record, Run, write_leg
from fullstep.lab.ranks.tree import RanksFailedError, started
from fullstep.lab.room import room_of
from fullstep.ledger.drill import Drill, DrillCheck, DrillControl, DrillElsewhere
from fullstep.quantities import counted

Progress = Callable[[str], None]
SEED = 20_260_101
WARM_UP_STEP, SAVED_AT, STEPS_AFTER = 1, 3, 4
"""the first save is not timed; after the second one at least three steps, since a lost scheduler shows in the third"""
WHOLE = "nothing left out"
_WORKER = "fullstep.lab.drill.worker"
_DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
_EPOCHS = 2
"""the order of rows begins anew on the way"""


class Elsewhere(NamedTuple):
    """Other ranks or another layout to resume on."""

    worksheet: dict[str, Any]
    settings: Settings
    ranks: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be drilled."""

    settings: Settings
    worksheet: dict[str, Any]
    config: dict[str, Any]
    model: str
    device: str
    """cpu or cuda"""
    ranks: int
    to: str
    """folder or URL"""
    mode: str
    """sync, thread or process"""
    elsewhere: Elsewhere | None = None
    exports: bool = False
    keeps_files: bool = False
    saved_at: int = SAVED_AT
    silent_seconds: float = 600.0
    notes: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    blocks: tuple[int, int] | None = None
    """(drilled, of the whole model) where they are fewer"""


@dataclass
class _Legs:
    """The drill as it goes."""

    wanted: Wanted
    folder: str
    records: Path
    progress: Progress
    seen: dict[str, Seen] = field(default_factory=dict)
    records_of: dict[str, list[Record]] = field(default_factory=dict)
    failed_at: float = 0.0
    killed_seconds: float = 0.0
    started_at: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Of legs, all together."""
        return 4 if self.wanted.elsewhere is None else 5

    @property
    def last_step(self) -> int:
        return self.wanted.saved_at + STEPS_AFTER

    def go(self, name: str, *runs: Run, elsewhere: bool = False, **settings: Any) -> None:
        """One leg: its processes from start to end."""
        wanted = self.wanted
        where = wanted.elsewhere if elsewhere else None
        ranks = where.ranks if where else wanted.ranks
        records = self.records / name.replace(" ", "-")
        records.mkdir()
        rows_per_step = wanted.settings.rows_per_step
        leg = Leg(
            name=name, worksheet=where.worksheet if where else wanted.worksheet, config=wanted.config, device=wanted.device, seed=SEED,
            rows=max(rows_per_step * self.last_step // _EPOCHS, 1), rows_per_step=rows_per_step, folder=self.folder, records=str(records),
            mode=wanted.mode, keep=2, runs=runs, **settings,
        )  # fmt: skip
        write_leg(leg, records / "leg.json")
        self._run(leg, ranks, records / "leg.json")
        self.records_of[name] = read_records(leg, ranks)
        self.seen |= seen_of(self.records_of[name])

    def _run(self, leg: Leg, ranks: int, path: Path) -> None:
        number = len(self.records_of) + 1

        def say(stage: str) -> None:
            self.progress(f"leg {number} of {self.count}: {leg.name}: {stage.removeprefix(f'{leg.name}: ')}")

        say(f"starting {counted(ranks, 'rank')}")
        with started(f'leg "{leg.name}"', ranks, _WORKER, path, _DETERMINISTIC) as tree, stoppable():
            self.started_at[leg.name] = tree.started_at
            try:
                tree.wait_for_ranks(self.wanted.silent_seconds, say)
            except RanksFailedError as error:
                raise DrillFailedError(leg.name, error.what) from None
            if leg.waits:
                self.failed_at = time.time()
                self.killed_seconds = tree.family.kill()
            else:
                tree.wait_for_end()


def run_drill(wanted: Wanted, progress: Progress = lambda _: None) -> Drill:
    """All legs, one after another, each in new processes; and what they prove.

    Args:
        wanted: what is to be drilled; its limits are looked at before
        progress: is told the stages as they come

    Raises:
        InputError: the folder cannot be used, or the program cannot be built from the worksheet
        DrillFailedError: a checkpoint was not made, or does not come back
        LabError: a process died or hung
    """
    begun = time.monotonic()
    with (
        stops_wait(),
        DrillFolder(wanted.to, wanted.keeps_files) as folder,
        room_of("drill-records") as records,
        stoppable(),
    ):
        legs = _Legs(wanted, folder.path, Path(records), progress)
        _go_all(legs)
        progress("comparing")
        return _judged(legs, time.monotonic() - begun)


def _go_all(legs: _Legs) -> None:
    """One leg after another."""
    wanted, last = legs.wanted, legs.last_step
    ends = (last,)
    legs.go("uninterrupted", Run("uninterrupted", last, digest_at=(wanted.saved_at, last)))
    legs.go(
        "saving", Run("saving", last, save_at=(min(WARM_UP_STEP, wanted.saved_at - 1), wanted.saved_at), digest_at=ends),
        waits=True, writes_raw=True, exports=wanted.exports, samples_memory=True,
    )  # fmt: skip
    legs.go("resumed", Run("resumed", last, resumes=True, digest_at=ends))
    legs.go("controls", *_control_runs(wanted, last))
    if wanted.elsewhere is not None:
        legs.go("elsewhere", Run("elsewhere", last, resumes=True, plain=True, compares_end=True, digest_at=ends), elsewhere=True)


def _control_runs(wanted: Wanted, last: int) -> list[Run]:
    """Trainings with something left out, and after them one with nothing left out: what shows in it is the leg's and not the part's.

    Then, to compare those elsewhere with, one on the old ranks, and one with the mildest fault.
    """
    runs = [
        Run(f"without {part}", last, resumes=True, without=(part,), digest_at=(last,))
        for part in judge.PARTS if judge.has_part(part, wanted.settings)
    ]  # fmt: skip
    runs.append(Run(WHOLE, last, resumes=True, digest_at=(last,)))
    if wanted.elsewhere is not None:
        runs.append(Run("reference", last, resumes=True, plain=True, keeps_end=True, digest_at=(last,)))
        runs.append(Run("rounded", last, resumes=True, plain=True, rounds_state=True, digest_at=(last,)))
    return runs


def _judged(legs: _Legs, seconds: float) -> Drill:
    wanted, seen = legs.wanted, legs.seen
    saved = seen["saving"].digests[f"saved {wanted.saved_at}"]
    gate = judge.gate_of(wanted.settings, plain=False)
    twice = judge.control_of_control(seen["uninterrupted"], seen["saving"], wanted.saved_at, gate)
    truth = judge.Truth(seen["uninterrupted"], saved, wanted.saved_at, twice.holds is True, gate)
    checks = [twice, *judge.resumption_checks(truth, seen["resumed"]), *judge.resumption_checks(truth, seen[WHOLE])]
    controls = [judge.control(part, truth, seen.get(f"without {part}")) for part in judge.PARTS]
    moved, more = _elsewhere(legs, wanted.elsewhere) if wanted.elsewhere is not None else (None, [])
    checks += more
    export = export_of(legs.records_of["saving"])
    if export is not None:
        found = f"{export.tensors:,} tensors read back as they are" if not export.differing else judge.names(export.differing)
        checks.append(DrillCheck("saving", "full export", not export.differing, found))
    verdict, reason = judge.verdict_of(checks, controls)
    raw_bytes, raw_write, raw_read = raw_of(legs.records_of["saving"])
    staged, kept = staging_of(seen["saving"])
    return Drill(
        verdict=verdict, reason=reason, model=wanted.model, device=legs.records_of["saving"][0]["device"], ranks=wanted.ranks,
        strategy=wanted.settings.layout.strategy, saved_at=wanted.saved_at, steps=legs.last_step,
        rows_per_step=wanted.settings.rows_per_step, checks=tuple(checks), controls=tuple(controls),
        save=save_of(seen["saving"], -1, seen["uninterrupted"]), warm_up=save_of(seen["saving"], 0, seen["uninterrupted"]),
        load=load_of(seen["resumed"]), step_seconds=usual_step_seconds(seen["uninterrupted"]),
        restart=restart_of(legs.records_of["resumed"], legs.failed_at, legs.killed_seconds, legs.started_at["resumed"]),
        raw_bytes=raw_bytes, raw_write_seconds=raw_write, raw_read_seconds=raw_read, staging_bytes=staged, staging_kept_bytes=kept,
        elsewhere=moved, export=export, notes=wanted.notes, folder=legs.folder, is_kept=wanted.keeps_files, seconds=seconds,
        blocks=wanted.blocks,
        versions=(("python", sys.version.split()[0]), *wanted.versions),
    )  # fmt: skip


def _elsewhere(legs: _Legs, elsewhere: Elsewhere) -> tuple[DrillElsewhere, list[DrillCheck]]:
    wanted, seen = legs.wanted, legs.seen
    gate = judge.gate_of(wanted.settings, plain=True)
    moved, reference = seen["elsewhere"], seen["reference"]
    saved = seen["saving"].digests[f"saved {wanted.saved_at}"]
    mildest = judge.loss_difference(reference, seen["rounded"])
    truth = judge.Truth(reference, saved, wanted.saved_at, exact=False, gate=gate)
    checks = judge.elsewhere_checks(truth, moved, mildest)
    differences = moved.ranks[0]["differences"]
    summed = "over ranks and rows" if elsewhere.ranks != wanted.ranks else "of gradients"
    why = f"sums {summed} are made in another order"
    found = DrillElsewhere(
        ranks=elsewhere.ranks, strategy=elsewhere.settings.layout.strategy, loss_difference=judge.loss_difference(reference, moved),
        gate=gate.limit, gate_why=gate.why, mildest_fault=mildest,
        differences=tuple((kind, float(share), str(tensor)) for kind, (share, tensor) in differences.items()),
        load=load_of(moved), why=why,
    )  # fmt: skip
    return found, checks


__all__ = ["SAVED_AT", "Drill", "DrillControl", "Elsewhere", "Wanted", "run_drill"]
