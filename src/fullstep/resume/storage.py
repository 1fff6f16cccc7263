"""Writers and readers of torch.distributed.checkpoint that leave a manifest behind, for folders and for what fsspec reaches."""

from __future__ import annotations

import io
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
from torch.distributed.checkpoint.filesystem import FileSystemBase, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, WriteResult
from torch.futures import Future
from torch.utils.serialization import config

from fullstep.resume.manifest import Manifest, StoredFile, write_manifest
from fullstep.resume.places import LocalPlace, Place
from fullstep.resume.ranks import said
from fullstep.resume.reading import DirectReader
from fullstep.resume.stream import DigestedStream, Written

METADATA = ".metadata"


@dataclass
class _StampedInfo(_StorageInfo):
    """Where an item lies, and what its file is: so the coordinator learns the digests of all ranks with what torch gathers anyway."""

    written: Written | None = None


class Published(NamedTuple):
    """What the coordinator tells all ranks of a checkpoint, in place of where each item lies."""

    bytes: int
    """of all files but the manifest"""
    files: int
    digest_seconds: float
    """of the slowest rank: writing stood still for digests"""


class _DigestedFiles(FileSystemBase):
    """A file system of torch's that digests what is written; all else is left to it."""

    def __init__(self, files: FileSystemBase, unbuffered: bool) -> None:
        self._files, self._unbuffered = files, unbuffered
        self.written: dict[str, Written] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[IO[bytes]]:
        if mode != "wb":
            with self._files.create_stream(path, mode) as stream:
                yield stream
            return
        with self._opened(path) as stream, DigestedStream(stream) as digested:
            yield digested  # type: ignore[misc]
            self.written[Path(str(path)).name] = digested.written()

    @contextmanager
    def _opened(self, path: Any) -> Iterator[IO[bytes]]:
        if self._unbuffered:
            with Path(path).open("wb", buffering=0) as stream:
                yield stream
        else:
            with self._files.create_stream(path, "wb") as stream:
                yield stream

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_files":
            raise AttributeError(name)
        return getattr(self._files, name)

    def concat_path(self, path: Any, suffix: str) -> Any:
        return self._files.concat_path(path, suffix)

    def rename(self, path: Any, new_path: Any) -> None:
        self._files.rename(path, new_path)

    def init_path(self, path: Any) -> Any:
        return self._files.init_path(path)

    def mkdir(self, path: Any) -> None:
        """The folder was claimed for this save: one that vanished since is not made again behind everybody's back."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return True

    def exists(self, path: Any) -> bool:
        return bool(self._files.exists(path))

    def rm_file(self, path: Any) -> None:
        self._files.rm_file(path)


class _WithoutSums:
    """The archive's own sums, which nobody reads and which would take as long as writing, are off while any save writes."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before, config.save.compute_crc32 = config.save.compute_crc32, False
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                config.save.compute_crc32 = self._before


_WITHOUT_SUMS = _WithoutSums()


class _Publishing:
    """What the writers below add to torch's: digests on the way, and the manifest after everything else."""

    path: Any
    fs: Any

    def publishes(self, place: Place, folder: str, manifest: Manifest) -> None:
        """What the manifest will say; its files are known when they are written."""
        self._root, self._folder, self._manifest = place.root, folder, manifest
        self.fs = _DigestedFiles(self.fs, unbuffered=place.is_local)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        with _plain_errors(), _WITHOUT_SUMS:
            results = super().write_data(plan, planner).wait()  # type: ignore[misc]
        stamped: Future[list[WriteResult]] = Future()
        stamped.set_result([replace(result, storage_data=self._stamp(result.storage_data)) for result in results])
        return stamped

    def _stamp(self, info: _StorageInfo) -> _StampedInfo:
        plain = {field.name: getattr(info, field.name) for field in fields(_StorageInfo)}
        return _StampedInfo(**plain, written=self.fs.written[info.relative_path])

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes torch's metadata, then the manifest. The coordinator alone does this, after every rank has written."""
        infos = [result.storage_data for each in results for result in each]
        files = {info.relative_path: StoredFile(info.written.bytes, info.written.sha256) for info in infos}
        waited = max((info.written.waited_seconds for info in infos), default=0.0)
        plain = [[replace(result, storage_data=_plain(result.storage_data)) for result in each] for each in results]
        written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with _plain_errors():
            super().finish(metadata, plain)  # type: ignore[misc]
            files[METADATA] = StoredFile(*self.fs.written[f"{METADATA}.tmp"][:2])
            write_manifest(Place.at(self._root), self._folder, replace(self._manifest, files=files, written=written))
        metadata.storage_data = Published(sum(file.bytes for file in files.values()), len(files) + 1, waited)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors travel to the other ranks as pickles: one that cannot would leave these waiting for it."""
    try:
        yield
    except Exception as error:
        root = _root_of(error)
        if root is not None and root.errno is not None:
            raise OSError(root.errno, root.strerror, root.filename and str(root.filename)) from None
        raise RuntimeError(said(error if root is None else root)) from None


def _root_of(error: BaseException | None) -> OSError | None:
    """What the disk said first: torch's archive, closed after that, complains that it is at another position than it thought."""
    found = None
    while error is not None:
        found = error if isinstance(error, OSError) else found
        error = error.__cause__ or error.__context__
    return found


def _plain(info: _StampedInfo) -> _StorageInfo:
    return _StorageInfo(**{field.name: getattr(info, field.name) for field in fields(_StorageInfo)})


class _FolderWriter(_Publishing, FileSystemWriter):
    pass


class _UrlWriter(_Publishing, FsspecWriter):
    pass


def writer_to(place: Place, folder: str, manifest: Manifest) -> FileSystemWriter:
    """Writes into a folder that was claimed, and publishes it. It can be sent to another process.

    Args:
        place: of the checkpoints
        folder: claimed in it
        manifest: all but the files
    """
    kind = _FolderWriter if isinstance(place, LocalPlace) else _UrlWriter
    writer = kind(place.path(folder), sync_files=place.is_local, overwrite=False)
    writer.publishes(place, folder, manifest)
    return writer


def reader_of(place: Place, folder: str) -> StorageReader:
    """Reads a checkpoint whose files were verified: its metadata is a pickle."""
    return DirectReader(place.path(folder)) if isinstance(place, LocalPlace) else FsspecReader(place.path(folder))


def value_of(place: Place, folder: str, metadata: Metadata, name: str) -> Any:
    """A plain value of a checkpoint by its name; None: it has none of that name."""
    info = next((info for index, info in metadata.storage_data.items() if index.fqn == name), None)
    if info is None:
        return None
    with place.open(folder, info.relative_path) as stream:
        stream.seek(info.offset)
        return torch.load(io.BytesIO(stream.read(info.length)), weights_only=True)


def metadata_of(place: Place, folder: str) -> Metadata:
    """What torch's metadata says of a checkpoint whose files were verified."""
    with place.open(folder, METADATA) as stream:
        metadata: Metadata = pickle.load(stream)
    return metadata
