"""Asking over HTTPS within a time and a size. The standard library has neither limit for the whole of an answer."""

from __future__ import annotations

import time
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fullstep import __version__
from fullstep.offers.live.answers import LARGEST_ANSWER_BYTES, FetchError

_PIECE_BYTES = 64 * 1024
_HEADERS = {"User-Agent": f"fullstep/{__version__}", "Accept": "application/json"}


class Deadline:
    """A moment by which an answer has to be there.

    Args:
        seconds: from now
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left_seconds(self) -> float:
        """What is left.

        Raises:
            FetchError: nothing is
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise FetchError(f"no answer within {self.seconds:g} s")
        return left


class _Redirects(HTTPRedirectHandler):
    """Follows no redirect that leaves HTTPS, nor one to another kind of address."""

    def redirect_request(  # noqa: PLR0917 (as the library calls it)
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not newurl.startswith(("https:", f"{req.type}:")):
            raise FetchError("redirected away from HTTPS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def ask(address: str, deadline: Deadline, body: bytes | None = None) -> bytes:
    """The answer to a GET, or to a POST of JSON where there is a body.

    Raises:
        FetchError: none came in time, or one that is no answer
    """
    headers = _HEADERS if body is None else {**_HEADERS, "Content-Type": "application/json"}
    try:
        request = Request(address, body, headers)
        with build_opener(_Redirects).open(request, timeout=deadline.left_seconds()) as answer:
            return _read(answer, deadline)
    except HTTPError as error:
        with error:
            raise FetchError(f"HTTP {error.code} {error.reason}") from None
    except TimeoutError:
        raise FetchError(f"no answer within {deadline.seconds:g} s") from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise FetchError(f"no answer within {deadline.seconds:g} s") from None
        raise FetchError(f"no connection: {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(f"the connection broke: {type(error).__name__} {error}") from None


def _read(answer: Any, deadline: Deadline) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := answer.read1(_PIECE_BYTES):
        deadline.left_seconds()
        size += len(piece)
        if size > LARGEST_ANSWER_BYTES:
            raise FetchError(f"an answer of more than {LARGEST_ANSWER_BYTES // 1024**2} MiB")
        pieces.append(piece)
    if answer.length:  # of which the rest was announced
        raise FetchError("the connection broke before the end of the answer")
    return b"".join(pieces)
