"""A checkpoint is verified, then filled into a training: each rank reads a share of its files, and loads what is its own."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata

from fullstep.resume.errors import LoadError, UnreadableError
from fullstep.resume.folders import Found
from fullstep.resume.frozen import Frozen
from fullstep.resume.manifest import Flaw, Manifest, flaws_of_files
from fullstep.resume.places import Place
from fullstep.resume.ranks import FAILURES, Ranks, said
from fullstep.resume.records import Loaded
from fullstep.resume.state import TrainingState
from fullstep.resume.storage import METADATA, metadata_of, reader_of, value_of

_IN_PART = "The model is overwritten in part: build it anew before anything else."


class Loader:
    """All ranks must call the same methods.

    Args:
        place: of the checkpoints
        state: to fill
        group: of gloo; None: one process
        ranks: all of them, who talk by another group
        frozen: what the checkpoint does not hold
    """

    def __init__(self, place: Place, state: TrainingState, group: dist.ProcessGroup | None, ranks: Ranks, frozen: Frozen) -> None:
        self._place, self._state, self._group, self._ranks, self._frozen = place, state, group, ranks, frozen

    def flaws(self, found: Found) -> list[Flaw]:
        """What is wrong with a folder. Each rank reads a share of its files; all learn what any of them found."""
        if found.manifest is None:
            return [Flaw(str(found.why), lasts=not isinstance(found.why, UnreadableError))]
        if METADATA not in found.manifest.files:
            return [Flaw("something else than a training was sealed in it")]
        mine = partial(
            flaws_of_files, self._place, found.folder, found.manifest, lambda number: number % self._ranks.count == self._ranks.rank
        )
        everywhere = self._ranks.share(self._ranks.together(mine, LoadError), LoadError)
        return [flaw for each in everywhere for flaw in each]

    def load(self, folder: str, manifest: Manifest, without: Collection[str]) -> Loaded:
        """Fills what was verified.

        Raises:
            LoadError: it does not fit this training
        """
        self._frozen.require(manifest.frozen, manifest.ranks)
        load_seconds, apply_seconds, rng = self.fill(folder, manifest.ranks, without, manifest.step)
        return Loaded(
            step=manifest.step, folder=folder, bytes=manifest.bytes, files=len(manifest.files) + 1, ranks=manifest.ranks,
            verify_seconds=0.0, load_seconds=load_seconds, apply_seconds=apply_seconds, rng=rng,
        )  # fmt: skip

    def fill(self, folder: str, ranks: int, without: Collection[str], step: int | None = None) -> tuple[float, float, Any]:
        """(Seconds of loading, seconds of applying, what became of the random numbers).

        Args:
            folder: to load
            ranks: that saved it
            without: parts that are left as they are
            step: of the checkpoint; None: something else wrote it

        Raises:
            LoadError: it does not fit this training
        """
        state = self._ranks.together(partial(self._fitting, folder, ranks), LoadError)
        begun = time.perf_counter()
        try:
            reader = reader_of(self._place, folder)
            dcp.load(state, storage_reader=reader, process_group=self._group, no_dist=self._group is None)
            loaded = time.perf_counter()
            rng = self._ranks.together(partial(self._state.apply, state, step, without), LoadError)
        except FAILURES as error:
            raise LoadError(f"{self._place.show(folder)} could not be loaded: {said(error, self._ranks.count)}", _IN_PART) from error
        return loaded - begun, time.perf_counter() - loaded, rng

    def _fitting(self, folder: str, ranks: int) -> dict[str, Any]:
        """What the checkpoint will fill, once it is known to fit."""
        try:
            metadata = metadata_of(self._place, folder)
        except Exception as error:
            what = f"{self._place.show(folder)} has no metadata that can be read: {said(error)}"
            raise LoadError(what, "Nothing was changed.") from error
        return self._state.to_load(metadata, ranks, self._groups_in(folder, metadata))

    def _groups_in(self, folder: str, metadata: Metadata) -> list[list[str]]:
        """The names of the parameters in each group of the optimizer."""
        groups: list[list[str]] = []
        while (names := value_of(self._place, folder, metadata, f"optimizer.param_groups.{len(groups)}.params")) is not None:
            groups.append(list(names))
        return groups
