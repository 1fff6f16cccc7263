"""One save at a time, by torch.distributed.checkpoint: at once, or by a thread or process beside training."""

from __future__ import annotations

import atexit
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _async_process_executor
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from fullstep.resume.errors import SaveError
from fullstep.resume.manifest import MANIFEST, Manifest
from fullstep.resume.places import Place
from fullstep.resume.ranks import FAILURES, Ranks, failures_of, said
from fullstep.resume.records import Mode, Saved
from fullstep.resume.storage import Published, writer_to

_LOG = logging.getLogger("fullstep.resume")
_UNTOUCHED = "Training was not touched, and the checkpoints before are as they were."
_State = Mapping[str, Any]


class _Upload(NamedTuple):
    """A save that goes on beside training."""

    saved: Saved
    future: Future[Metadata]
    begun: float
    ended: list[float]
    at_exit: Callable[[], None]


class Saver:
    """Writes a state into a claimed folder and publishes it. All ranks must call the same methods.

    Args:
        place: of the checkpoints
        mode: sync; thread: staged in host memory and written by a thread; process: by a process of its own, which outlives this one
        group: of gloo, for saves alone; None: one process
        ranks: all of them, who talk by another group than saves do
    """

    _in_process: ClassVar[Future[Metadata] | None] = None

    def __init__(self, place: Place, mode: Mode, group: dist.ProcessGroup | None, ranks: Ranks) -> None:
        self.place, self.mode, self._group, self._ranks = place, mode, group, ranks
        self._stager: DefaultStager | None = None
        self._upload: _Upload | None = None
        if group is None:  # torch says with each save and load that it takes this for one process, which it is
            warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized", UserWarning)

    @property
    def seconds_under_way(self) -> float | None:
        """How long the upload in flight has taken until now; None: there is none, or it has ended."""
        return None if self._upload is None or self._upload.ended else time.perf_counter() - self._upload.begun

    @property
    def seconds_of_ended(self) -> float | None:
        """What the upload took that has ended and was not waited for yet; None: there is none."""
        return self._upload.ended[0] - self._upload.begun if self._upload is not None and self._upload.ended else None

    def start(self, collect: Callable[[], _State], saved: Saved, manifest: Manifest, at_once: bool) -> None:
        """Begins a save; in mode sync, or with ``at_once``, it is also over when this returns.

        Raises:
            SaveError: it failed; the folder is gone again
        """
        begun = time.perf_counter()
        try:
            state = dict(self._ranks.together(collect, SaveError))
            saved.state_seconds = time.perf_counter() - begun
            writer = writer_to(self.place, saved.folder, manifest)
            if self.mode == "sync" or at_once:
                begun = time.perf_counter()
                metadata = dcp.save(state, storage_writer=writer, process_group=self._group, no_dist=self._group is None)
                _complete(saved, metadata, time.perf_counter() - begun)
                return
            kind = AsyncCheckpointerType.PROCESS if self.mode == "process" else AsyncCheckpointerType.THREAD
            self._let_others_end()
            future = dcp.async_save(
                state, storage_writer=writer, process_group=self._group, async_checkpointer_type=kind,
                async_stager=self._staged(), no_dist=self._group is None,
            )  # fmt: skip
        except FAILURES as error:
            raise self._failed(saved, error) from error
        self._begun(saved, cast("Future[Metadata]", future))

    def _begun(self, saved: Saved, future: Future[Metadata]) -> None:
        if self.mode == "process":
            Saver._in_process = future
        ended: list[float] = []
        future.add_done_callback(lambda _: ended.append(time.perf_counter()))
        self._upload = _Upload(saved, future, time.perf_counter(), ended, atexit.register(partial(_tell_unwaited, future, saved)))

    def _let_others_end(self) -> None:
        """All Checkpoints of a trainer share its saving process, which would answer one with what it did for another."""
        if self.mode == "process" and Saver._in_process is not None:
            Saver._in_process.exception()

    def _staged(self) -> DefaultStager:
        """One for all saves: its memory is used again, which makes every save after the first stop training for a fraction of the time."""
        if self._stager is None:
            gpu = torch.cuda.is_available()
            options = StagingOptions(
                use_pinned_memory=gpu, use_shared_memory=self.mode == "process", use_async_staging=False, use_non_blocking_copy=gpu
            )
            self._stager = _SharedStager(options, self._ranks)
        return self._stager

    def wait(self) -> Saved | None:
        """Until the upload in flight has ended on all ranks; None: there is none.

        Raises:
            SaveError: it failed; the folder is gone again
        """
        if self._upload is None:
            return None
        saved = self._upload.saved
        try:
            self._ranks.together(self._result, SaveError)
        except SaveError as error:
            self._forget_process()
            raise self._failed(saved, error) from error
        return saved

    def wait_alone(self) -> Saved | None:
        """The same for this rank, whatever the others do.

        Raises:
            SaveError: it failed; the folder is gone again
        """
        if self._upload is None:
            return None
        saved = self._upload.saved
        try:
            self._result()
        except FAILURES as error:
            raise self._failed(saved, error) from error
        return saved

    def _result(self) -> None:
        assert self._upload is not None
        saved, future, begun, ended, at_exit = self._upload
        future.exception()  # whoever interrupts this wait may come again
        self._upload = None
        atexit.unregister(at_exit)
        _complete(saved, future.result(), (ended[0] if ended else time.perf_counter()) - begun)

    def close(self) -> None:
        """Lets the staging memory go."""
        if self._stager is not None:
            self._stager.close()
            self._stager = None

    def _failed(self, saved: Saved, error: BaseException) -> SaveError:
        """What to raise once the folder is gone. One that was published before a rank was lost stays."""
        published = False
        with suppress(Exception):
            published = self.place.has(saved.folder, MANIFEST)
            if not published and self._ranks.rank == 0:
                self.place.remove(saved.folder, MANIFEST)
        for each in [*failures_of(error).values(), *failures_of(error.__cause__).values()]:
            if isinstance(each, KeyboardInterrupt):  # torch takes it for an error of the save
                raise each
        where, why = self.place.show(saved.folder), said(error, self._ranks.count)
        if published:
            return SaveError(f"step {saved.step} is complete in {where}, but not every rank learned of it: {why}")
        return SaveError(f"step {saved.step} was not saved to {where}: {why}", _UNTOUCHED)

    def _forget_process(self) -> None:
        """The next save starts saving processes anew, on all ranks: one of them may be gone, or wait for one that is."""
        if self.mode == "process":
            _async_process_executor._CHECKPOINT_PROCESS = None


class _SharedStager(DefaultStager):
    """Where one rank cannot stage, none goes on to write: it would wait for that rank."""

    def __init__(self, options: StagingOptions, ranks: Ranks) -> None:
        super().__init__(options)
        self._ranks = ranks

    def stage(self, state_dict: Any, **settings: Any) -> Any:
        return self._ranks.together(lambda: DefaultStager.stage(self, state_dict, **settings), SaveError)


def _complete(saved: Saved, metadata: Metadata, seconds: float) -> None:
    published = metadata.storage_data
    assert isinstance(published, Published)
    saved.bytes, saved.files, saved.digest_seconds = published.bytes, published.files, published.digest_seconds
    saved.write_seconds, saved.published = seconds, True


def _tell_unwaited(future: Future[Metadata], saved: Saved) -> None:
    """At the end of Python, which waits for uploads but looks at nothing that became of them."""
    error = future.exception()
    if error is None:
        _LOG.warning("step %d was saved while Python ended. End a training with close(): it waits, and takes older ones away", saved.step)
    else:
        _LOG.error("step %d was not saved to %s: %s. End a training with close(), which raises this", saved.step, saved.folder, said(error))
