"""Reads one request from standard input, answers in lines of JSON, and ends without the clean-ups of libraries, which may crash."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any


def main() -> None:
    """One trace. Whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    try:
        say({"progress": "loading torch and transformers"})
        say(_answer(sys.stdin.read(), lambda stage: say({"progress": stage})))
    except BaseException as error:
        say({"crash": f"{type(error).__name__}: {str(error)[:500]}", "traceback": traceback.format_exc(limit=-8)})
    sys.stderr.flush()
    os._exit(0)


def _answer(text: str, report: Any) -> dict[str, Any]:
    from fullstep.errors import InputError, UnsupportedError  # noqa: PLC0415 - after the first sign of life
    from fullstep.lab.trace.front.wire import decode_request, encode_fault, encode_trace  # noqa: PLC0415
    from fullstep.lab.trace.worker.session import trace  # noqa: PLC0415

    try:
        return {"trace": encode_trace(trace(decode_request(text), report))}
    except UnsupportedError as error:
        return {"unsupported": [encode_fault(fault) for fault in error.faults]}
    except InputError as error:
        return {"faults": [encode_fault(fault) for fault in error.faults]}


if __name__ == "__main__":
    main()
