"""A file that is digested while it is written: in a thread of its own, so that a save waits for the slower of the two."""

from __future__ import annotations

import errno
import hashlib
import io
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, NamedTuple

_CHUNK_BYTES = 1 << 23
_AT_ONCE_BYTES = 1 << 16
"""less than this is digested at once: a thread would take longer to be asked"""


class Written(NamedTuple):
    """A file that was written."""

    bytes: int
    sha256: str
    waited_seconds: float
    """writing stood still for its digest"""


class DigestedStream(io.RawIOBase):
    """Passes on what is written to it, and digests it on the way.

    Args:
        stream: open for writing, not buffered
    """

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self._digest, self._position = stream, hashlib.sha256(), 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="digest")
        self._waited_seconds = 0.0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.shutdown(wait=True)
        super().__exit__(kind, error, trace)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def fileno(self) -> int:
        return self._stream.fileno()

    def flush(self) -> None:
        """Nothing is held back here; an object store that is told to flush would close a part of its upload."""

    def write(self, data: Any, /) -> int:
        """All of it, or an OSError."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _CHUNK_BYTES):
            self._write_chunk(view[start : start + _CHUNK_BYTES])
        return len(view)

    def _write_chunk(self, chunk: memoryview) -> None:
        digesting = self._digesting(chunk)
        try:
            done = 0
            while done < len(chunk):
                written = self._stream.write(chunk[done:])
                if not written:
                    raise OSError(errno.EIO, "nothing was written")
                done += written
        finally:
            if digesting is not None:  # the memory belongs to the caller, who may change it next
                begun = time.perf_counter()
                digesting.result()
                self._waited_seconds += time.perf_counter() - begun
        self._position += len(chunk)

    def _digesting(self, chunk: memoryview) -> Future[None] | None:
        """None: it is done."""
        if len(chunk) > _AT_ONCE_BYTES:
            with suppress(RuntimeError):  # Python ends and starts nothing new, but waits for this save
                return self._thread.submit(self._digest.update, chunk)
        self._digest.update(chunk)
        return None

    def written(self) -> Written:
        """What has been written so far."""
        return Written(self._position, self._digest.hexdigest(), self._waited_seconds)
