"""The checkpoints of transformers' Trainer, made whole or nothing: a callback.

The Trainer writes its own folders: files of transformers, of torch.distributed.checkpoint under FSDP, of DeepSpeed. It takes the newest
of them by its number, also one that a killed run left unfinished, and goes on quietly where a file of it is missing. The callback seals
each folder once it is complete, and chooses among those that are sealed and unchanged.

    from fullstep.resume import SealedCheckpoints

    sealed = SealedCheckpoints(arguments.output_dir, keep=2)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[sealed])
    trainer.train(resume_from_checkpoint=sealed.newest())
"""

from __future__ import annotations

import logging
import re
import signal
import time
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from fullstep.resume.errors import LoadError, SaveError
from fullstep.resume.frozen import Frozen
from fullstep.resume.manifest import MANIFEST, Manifest, flaws_of_files, read_manifest
from fullstep.resume.places import Place
from fullstep.resume.ranks import Ranks
from fullstep.resume.sealed import seal
from fullstep.resume.stopping import Notice, StopSignal

_LOG = logging.getLogger("fullstep.resume")
_NAME = re.compile(r"checkpoint-(\d+)")
_ASIDE = "aside-"
_OPTIMIZER = ("optimizer.pt", "optimizer.bin", "optimizer_", "global_step")
"""beginnings of what holds its states: transformers, FSDP whole and in shards, DeepSpeed"""


class SealedCheckpoints(TrainerCallback):
    """Seals the Trainer's checkpoints, keeps the newest of them, and ends training in time when the machine is taken away.

    Args:
        folder: the Trainer's output_dir; a path that all ranks see
        keep: sealed checkpoints; those before go once a new one is sealed (leave the Trainer's save_total_limit unset)
        notice_seconds: from SIGTERM until the machine is gone, as the provider states it; 30 is assumed where nothing is said
        signals: that announce this; () leaves them alone
    """

    def __init__(
        self, folder: str | Path, *, keep: int = 2, notice_seconds: float = 30.0, signals: Iterable[signal.Signals] = (signal.SIGTERM,)
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep = {keep}: at least 1, the newest")
        self._place, self._keep = Place.at(Path(folder)), keep
        self._notice_seconds, self._signals = notice_seconds, tuple(signals)
        self._stop: StopSignal | None = None
        self._group: dist.ProcessGroup | None = None
        self._frozen: Frozen | None = None
        self._began = 0.0
        self._save_seconds: float | None = None

    def newest(self) -> str | None:
        """The newest sealed checkpoint whose every file is as it was sealed; None: there is none. All ranks must call it.

        It reads all of its files. Folders that are passed over are named in a warning.
        """
        return self._together().from_first(self._newest, LoadError)

    def _newest(self) -> str | None:
        for name in self._folders():
            try:
                faults = [flaw.what for flaw in flaws_of_files(self._place, name, read_manifest(self._place, name))]
            except LoadError as error:
                faults = [error.what]
            if not faults:
                return self._place.path(name)
            _LOG.warning("%s is passed over: %s", name, "; ".join(faults[:3]))
        return None

    def _folders(self) -> list[str]:
        found = [(int(match[1]), name) for name in self._place.names() if (match := _NAME.fullmatch(name))]
        return [name for _, name in sorted(found, reverse=True)]

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Refuses settings under which nothing could be resumed, and puts aside what the Trainer would write into."""
        for name in ("save_only_model", "save_total_limit"):
            if getattr(args, name, None):
                raise ValueError(f"{name} = {getattr(args, name)}: leave it unset; SealedCheckpoints(keep=...) keeps whole checkpoints")
        if Path(args.output_dir).absolute() != Path(self._place.root):
            raise ValueError(f"SealedCheckpoints is for {self._place.root}, and the Trainer writes to {args.output_dir}")
        ranks = self._together()
        self._stop = StopSignal(self._signals, self._notice_seconds, self._group)
        ranks.from_first(partial(self._make_way, state.global_step), SaveError)
        if hasattr(model, "peft_config"):  # of these the Trainer saves the adapters alone
            self._frozen = Frozen(model, ranks)
            self._frozen.require(*ranks.from_first(partial(self._frozen_in, state.global_step), LoadError))

    def _frozen_in(self, step: int) -> tuple[tuple[str, ...], int]:
        """(Fingerprint, ranks) of the checkpoint from which training goes on, where it is one that was sealed."""
        try:
            manifest = read_manifest(self._place, f"checkpoint-{step}")
        except LoadError:
            return (), 0
        return manifest.frozen, manifest.ranks

    def _together(self) -> Ranks:
        """All ranks, who talk by a group of their own: the Trainer's may be one of GPUs."""
        if self._group is None and dist.is_available() and dist.is_initialized():
            self._group = dist.new_group(backend="gloo")
        return Ranks(self._group)

    def _make_way(self, step: int) -> None:
        for name in self._folders():
            if int(name.rpartition("-")[2]) > step:
                self._put_aside(name)

    def _put_aside(self, name: str) -> None:
        """Nothing is written into a folder that is there, and nothing is lost: whoever wants its room takes it away by hand."""
        path = Path(self._place.path(name))
        number = 0
        while (aside := path.with_name(f"{_ASIDE}{name}" + (f".{number}" if number else ""))).exists():
            number += 1
        path.rename(aside)
        _LOG.warning("%s was put aside as %s: training begins before it", name, aside.name)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """All ranks agree whether to stop; then this step is saved and training ends."""
        assert self._stop is not None, "on_train_begin comes first"
        before = self._stop.agreed
        if self._stop.agree():
            if not before and self._together().rank == 0:
                _LOG.warning("asked to stop: %s", self.notice)
            control.should_save = control.should_training_stop = True
        self._began = time.perf_counter()
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """It comes before the save of the same step, and is no part of it."""
        self._began = time.perf_counter()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Seals what the Trainer has just written, on rank 0 once every rank is here, and then takes older ones away."""
        ranks, name = self._together(), f"checkpoint-{state.global_step}"
        ranks.share(None, SaveError)  # every rank has written its random numbers
        frozen = () if self._frozen is None else self._frozen.fingerprint()
        ranks.from_first(partial(self._seal, name, state.global_step, ranks.count, frozen), SaveError)
        if ranks.rank == 0:
            self._make_room()
        self._save_seconds = time.perf_counter() - self._began

    def _seal(self, name: str, step: int, ranks: int, frozen: tuple[str, ...]) -> None:
        if missing := _missing(self._place.files(name), ranks):
            remedy = "The checkpoints before are as they were."
            raise SaveError(f"{name} was not completed: {', '.join(missing)} is not among its files", remedy)
        versions = {"torch": torch.__version__, "transformers": version("transformers"), "fullstep": version("fullstep")}
        seal(self._place, name, Manifest(step=step, ranks=ranks, parts=("trainer",), files={}, frozen=frozen, versions=versions))

    def _make_room(self) -> None:
        """The new one is complete whatever becomes of the old ones."""
        try:
            whole = [each for each in self._folders() if self._place.has(each, MANIFEST)]
            for each in whole[self._keep :]:
                self._place.remove(each, MANIFEST)
        except OSError as error:
            _LOG.warning("older checkpoints could not be taken away: %s", error)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Signals do again what they did."""
        if self._stop is not None:
            self._stop.close()
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None

    @property
    def notice(self) -> Notice | None:
        """How much time is left; None: nobody asked this rank to stop."""
        return None if self._stop is None else self._stop.notice(self._save_seconds)


def _missing(files: list[str], ranks: int) -> list[str]:
    """What a training needs to go on and the Trainer would go on without.

    >>> _missing(["model.safetensors", "trainer_state.json", "scheduler.pt", "rng_state.pth"], 1)
    ['the optimizer']
    """
    there = set(files)
    streams = ["rng_state.pth"] if ranks == 1 else [f"rng_state_{rank}.pth" for rank in range(ranks)]
    sharded = any(name.startswith("global_step") for name in files)  # DeepSpeed has its scheduler inside
    needed = ["trainer_state.json", *streams, *(() if sharded else ("scheduler.pt",))]
    missing = [name for name in needed if name not in there]
    return missing + ([] if any(name.startswith(_OPTIMIZER) for name in files) else ["the optimizer"])
