"""One save at a time, by torch.distributed.checkpoint: at once, or by a thread or process beside training."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from fullstep.resume.errors import SaveError
from fullstep.resume.manifest import MANIFEST, Manifest
from fullstep.resume.places import Place
from fullstep.resume.records import Mode, Saved
from fullstep.resume.storage import Published, writer_to

_UNTOUCHED = "Training was not touched, and the checkpoints before are as they were."


class Saver:
    """Writes a state into a claimed folder and publishes it.

    Args:
        place: of the checkpoints
        mode: sync; thread: staged in host memory and written by a thread; process: by a process of its own, which outlives this one
        group: of gloo, for saves alone; None: one process
    """

    def __init__(self, place: Place, mode: Mode, group: dist.ProcessGroup | None) -> None:
        self.place, self.mode, self._group = place, mode, group
        self._rank = 0 if group is None else dist.get_rank(group)
        self._stager: DefaultStager | None = None
        self._pending: tuple[Saved, Future[Metadata], float, list[float]] | None = None

    @property
    def busy(self) -> bool:
        """An upload has not been waited for."""
        return self._pending is not None

    def start(self, state: Mapping[str, Any], saved: Saved, manifest: Manifest, at_once: bool) -> None:
        """Begins a save; in mode sync, or with ``at_once``, it is also over when this returns.

        Raises:
            SaveError: it failed; the folder is gone again
        """
        writer = writer_to(self.place, saved.folder, manifest)
        if self.mode == "sync" or at_once:
            begun = time.perf_counter()
            try:
                metadata = dcp.save(dict(state), storage_writer=writer, process_group=self._group, no_dist=self._group is None)
            except Exception as error:
                raise self._failed(saved, error) from error
            _complete(saved, metadata, time.perf_counter() - begun)
            return
        kind = AsyncCheckpointerType.PROCESS if self.mode == "process" else AsyncCheckpointerType.THREAD
        try:
            future = dcp.async_save(
                dict(state), storage_writer=writer, process_group=self._group, async_checkpointer_type=kind,
                async_stager=self._staged(), no_dist=self._group is None,
            )  # fmt: skip
        except Exception as error:
            raise self._failed(saved, error) from error
        ended: list[float] = []
        done = cast("Future[Metadata]", future)
        done.add_done_callback(lambda _: ended.append(time.perf_counter()))
        self._pending = (saved, done, time.perf_counter(), ended)

    def _staged(self) -> DefaultStager:
        """One for all saves: its memory is used again, which makes every save after the first stop training for a fraction of the time."""
        if self._stager is None:
            gpu = torch.cuda.is_available()
            options = StagingOptions(
                use_pinned_memory=gpu, use_shared_memory=self.mode == "process", use_async_staging=False, use_non_blocking_copy=gpu
            )
            self._stager = DefaultStager(options)
        return self._stager

    def wait(self) -> Saved | None:
        """Until the upload in flight has ended; None: there is none.

        Raises:
            SaveError: it failed; the folder is gone again
        """
        if self._pending is None:
            return None
        saved, future, begun, ended = self._pending
        self._pending = None
        try:
            metadata = future.result()
        except Exception as error:
            raise self._failed(saved, error) from error
        _complete(saved, metadata, (ended[0] if ended else time.perf_counter()) - begun)
        return saved

    def close(self) -> None:
        """Lets the staging memory go."""
        if self._stager is not None:
            self._stager.close()
            self._stager = None

    def _failed(self, saved: Saved, error: Exception) -> SaveError:
        if self._rank == 0:
            with suppress(OSError):
                self.place.remove(saved.folder, MANIFEST)
        return SaveError(f"step {saved.step} was not saved to {self.place.show(saved.folder)}: {said(error)}", _UNTOUCHED)


def _complete(saved: Saved, metadata: Metadata, seconds: float) -> None:
    published = metadata.storage_data
    assert isinstance(published, Published)
    saved.bytes, saved.files, saved.digest_seconds = published.bytes, published.files, published.digest_seconds
    saved.write_seconds, saved.published = seconds, True


def said(error: BaseException) -> str:
    """What torch's error says, in a line: it wraps the errors of all ranks.

    >>> said(OSError(28, "No space left on device"))
    'No space left on device'
    """
    failures = getattr(error, "failures", None)
    if isinstance(failures, Mapping) and failures:
        rank, failure = min(failures.items())
        first = failure[0] if isinstance(failure, tuple) else failure
        return f"rank {rank}: {said(first)}" + (f" (and {len(failures) - 1} other ranks)" if len(failures) > 1 else "")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
