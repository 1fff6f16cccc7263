"""Saving and resuming a training, from a plain loop."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from fullstep.resume.arguments import agreed_step, require_sound
from fullstep.resume.digests import digests_of
from fullstep.resume.errors import IncompleteError, LoadError, SaveError
from fullstep.resume.folders import checkpoints_in, claim_folder, make_room, starts_in
from fullstep.resume.frozen import Frozen
from fullstep.resume.loading import Loader
from fullstep.resume.manifest import MANIFEST, Manifest
from fullstep.resume.places import Place
from fullstep.resume.ranks import Ranks, said
from fullstep.resume.records import Loaded, Mode, Saved
from fullstep.resume.saving import Saver
from fullstep.resume.state import LEFT_OUT, TrainingState
from fullstep.resume.stopping import Notice, StopSignal

_LOG = logging.getLogger("fullstep.resume")
_MOST_SHOWN = 3


class Checkpoints:
    """The checkpoints of one training. Every rank makes one and calls the same methods at the same steps.

    A checkpoint is a new folder of ``torch.distributed.checkpoint`` files. It counts from the moment that its manifest is written, which is
    last: with the size and SHA-256 of each file. Loading reads all of that first, and takes the newest folder that is whole.

    What goes wrong on one rank is an error on all of them. A rank that is killed is one at once; one whose machine is cut off, when gloo
    gives up, which takes it 30 minutes. Training is not touched by a save that fails.

    torchrun passes SIGTERM on to its ranks, and kills them 30 seconds later, by default: where the notice is longer, start it with
    ``--shutdown-timeout`` of nearly as many seconds. End a training with :meth:`close` or as a context: without, Python still waits for an
    upload, but nobody is told of its failure but by a line in the log, and older checkpoints stay.

    Args:
        folder: a path that all ranks see, or a URL of fsspec
        model: as it is trained, already wrapped; with frozen parameters, only what trains is saved
        optimizer: its own
        scheduler: of the learning rate
        loader: where the data goes on: a :class:`DataOrder`, or a data loader with ``state_dict``, saved per rank
        extra: more things with ``state_dict`` and ``load_state_dict``, by name; per rank unless they have ``same_on_all_ranks``
        keep: whole checkpoints; those before go once a new one is complete
        mode: sync; thread, process: written beside training, one at a time
        notice_seconds: from SIGTERM until the machine is gone, as the provider states it; 30 is assumed where nothing is said
        signals: that announce this; () leaves them alone

    Raises:
        ValueError: what is given cannot work
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        scheduler: Any = None,
        loader: Any = None,
        extra: Mapping[str, Any] | None = None,
        keep: int = 2,
        mode: Mode = "sync",
        notice_seconds: float = 30.0,
        signals: Iterable[signal.Signals] = (signal.SIGTERM,),
    ) -> None:
        parts = {"scheduler": scheduler, "loader": loader, **(extra or {})}
        require_sound(keep, mode, optimizer, extra or {})
        self.keep = keep
        self._place = Place.at(folder)
        here = dist.is_available() and dist.is_initialized()
        self._talk = dist.new_group(backend="gloo") if here else None
        self._saving = dist.new_group(backend="gloo") if here else None
        self._ranks = Ranks(self._talk)
        self.rank, self.ranks = self._ranks.rank, self._ranks.count
        self._state = TrainingState(model, optimizer, {name: part for name, part in parts.items() if part is not None}, self._saving)
        self._frozen = Frozen(model, self._ranks)
        self._saver = Saver(self._place, mode, self._saving, self._ranks)
        self._loader = Loader(self._place, self._state, self._saving, self._ranks, self._frozen)
        self._stop = StopSignal(signals, notice_seconds, self._talk)
        self._save_seconds: float | None = None
        self._damaged: set[str] = set()
        self._was_complete = False
        """one of the folders that the last load passed over"""
        self._starts: int | None = None
        self.loaded: Loaded | None = None
        """what the last load found"""

    @property
    def folder(self) -> str:
        """Path or URL."""
        return self._place.root

    @property
    def mode(self) -> Mode:
        """How checkpoints are written."""
        return self._saver.mode

    def save(self, step: int, *, note: Mapping[str, Any] | None = None) -> Saved:
        """Saves the state after ``step``. In mode sync, and once all ranks agreed to stop, it is published when this returns.

        In the other modes it returns when the state is staged; training may change it then. An upload still in flight is waited for: two
        at once would write over each other's staging memory.

        Args:
            step: after which it is
            note: to find again in the manifest, as JSON has it

        Raises:
            SaveError: this save failed, or the one before that was in flight; checkpoints before are as they were
            ValueError: the note cannot be written
        """
        step = agreed_step(step, note, self._ranks)
        begun = time.perf_counter()
        self._finish_before()
        waited = time.perf_counter()
        frozen = self._frozen.fingerprint()
        folder, self._starts = self._ranks.from_first(partial(self._claim, step), SaveError)
        saved = Saved(step=step, folder=folder, mode=self.mode, waited_seconds=waited - begun)
        versions = {"torch": torch.__version__, "fullstep": version("fullstep")}
        parts = self._state.names
        manifest = Manifest(
            step=step, starts=self._starts, ranks=self.ranks, parts=parts, files={}, frozen=frozen, versions=versions, note=note or {}
        )  # fmt: skip
        self._saver.start(self._state.to_save, saved, manifest, at_once=self._stop.agreed)
        saved.stall_seconds = time.perf_counter() - begun
        if saved.published:
            self._completed(saved)
        return saved

    def _claim(self, step: int) -> tuple[str, int]:
        folder = claim_folder(self._place, step)
        return folder, self._starts if self._starts is not None else starts_in(checkpoints_in(self._place)) + 1

    def _finish_before(self) -> None:
        """When time is short, an upload that failed is no reason not to save again."""
        try:
            self.finish()
        except SaveError as error:
            if not self._stop.agreed:
                raise
            if self.rank == 0:
                _LOG.error("%s Training is asked to stop, and saves again.", error)

    def finish(self) -> Saved | None:
        """Waits for the upload in flight; None: there is none. All ranks must call it.

        Raises:
            SaveError: it failed; checkpoints before it are as they were
        """
        return self._completed(self._saver.wait())

    def _completed(self, saved: Saved | None) -> Saved | None:
        """Room is made by rank 0 alone, and what goes wrong there is no fault of the checkpoint."""
        if saved is None:
            return None
        self._save_seconds = saved.write_seconds + saved.state_seconds
        self._damaged.discard(saved.folder)
        if self.rank == 0:
            try:
                for name in make_room(self._place, self.keep, saved.folder, self._damaged):
                    _LOG.info("%s is gone: %s is complete", name, saved.folder)
            except Exception as error:
                _LOG.warning("%s is complete, but older ones could not be taken away: %s", saved.folder, said(error))
        return saved

    def resume(self) -> int:
        """Loads the newest whole checkpoint. Returns its step; 0 where none was ever completed, which is said: a folder can have vanished.

        Raises:
            LoadError: it does not fit this training; or there are checkpoints, but none is whole
        """
        loaded = self.load()
        if loaded is None and self._was_complete:
            what = f"{self.folder} has checkpoints, but none that is whole: they are damaged or cannot be read"
            raise LoadError(what, "To begin anew, take them away or name a new folder.")
        if loaded is None and self.rank == 0:
            _LOG.warning("%s has no whole checkpoint: training begins anew", self.folder)
        return 0 if loaded is None else loaded.step

    def load(self, step: int | None = None, *, without: Collection[str] = ()) -> Loaded | None:
        """Loads the newest checkpoint whose every file is as it was written, or the one of a step.

        Args:
            step: None: the newest; those that are damaged or were not completed are passed over with a warning
            without: parts that are left as they are, to prove that their absence shows: scheduler, rng, moments, loader

        Returns:
            None: there is no whole checkpoint

        Raises:
            LoadError: that step has none, or the checkpoint does not fit this training
        """
        if unknown := set(without) - set(LEFT_OUT):
            raise ValueError(f"without = {sorted(unknown)}: allowed are {', '.join(LEFT_OUT)}")
        self.finish()
        skipped: list[tuple[str, str]] = []
        self._was_complete = False
        there = self._ranks.from_first(partial(checkpoints_in, self._place), LoadError)
        self._starts = starts_in(there) + 1
        for found in there:
            if step is not None and found.step != step:
                continue
            begun = time.perf_counter()
            flaws = self._loader.flaws(found)
            if not flaws and found.manifest is not None:
                verified = time.perf_counter() - begun
                loaded = self._loader.load(found.folder, found.manifest, without)
                self.loaded = replace(loaded, verify_seconds=verified, skipped=tuple(skipped))
                return self.loaded
            reason = "; ".join(flaw.what for flaw in flaws[:_MOST_SHOWN])
            if any(flaw.lasts for flaw in flaws):
                self._damaged.add(found.folder)
            self._was_complete |= not isinstance(found.why, IncompleteError)
            skipped.append((found.folder, reason))
            if self.rank == 0:
                _LOG.warning("%s is passed over: %s", found.folder, reason)
        if step is not None:
            reasons = "".join(f"; {folder}: {reason}" for folder, reason in skipped)
            raise LoadError(f"{self.folder} has no whole checkpoint of step {step}{reasons}")
        return None

    def load_untrusted(self, folder: str) -> None:
        """Loads tensors and all else from a folder without a manifest of ours. Nobody verified it, and it can run code: say so by hand.

        Args:
            folder: in that of the checkpoints, saved by this many ranks with the parts named as here

        Raises:
            LoadError: it does not fit this training, or is damaged
        """
        self.finish()
        self._loader.fill(folder, self.ranks, ())

    def digests(self) -> dict[str, str]:
        """Of the whole state, by name, the same whatever the number of ranks; random numbers per rank. All ranks must call it."""
        return digests_of(self._state.to_compare(), self._talk)

    def must_stop(self) -> bool:
        """Whether any rank was asked to stop; then save, and end. All ranks must call it after the same step: they agree here."""
        before = self._stop.agreed
        if self._stop.agree() and not before and self.rank == 0:
            _LOG.warning("asked to stop: %s", self.notice)
        return self._stop.agreed

    @property
    def stopping(self) -> bool:
        """All ranks agreed to stop."""
        return self._stop.agreed

    @property
    def notice(self) -> Notice | None:
        """How much time is left; None: nobody asked this rank to stop."""
        return self._stop.notice(self._saver.seconds_of_ended or self._save_seconds, self._saver.seconds_under_way)

    def close(self) -> None:
        """Waits for the upload in flight, lets staging memory go, and gives signals back. One rank alone may call it.

        Raises:
            SaveError: the last upload failed
        """
        try:
            self._completed(self._saver.wait_alone())
        finally:
            self._saver.close()
            self._stop.close()
            for group in (self._talk, self._saving):
                if group is not None and dist.is_initialized():
                    dist.destroy_process_group(group)
            self._talk = self._saving = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


__all__ = ["MANIFEST", "Checkpoints"]
