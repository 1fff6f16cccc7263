"""Reads requests from standard input, a line each, and answers in lines of JSON.

One request is answered in this process. With ``--many`` libraries are loaded once and every request has a process of its own, forked from
this one. Each process ends without the clean-ups of libraries, which may crash on fake tensors.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

Say = Callable[[dict[str, Any]], None]


def main() -> None:
    """Answers and ends. Whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    say({"progress": "loading torch and transformers"})
    if "--many" in sys.argv[1:]:
        _load_libraries()
        from fullstep.lab.trace.worker.compat import UNITS, install_all  # noqa: PLC0415

        install_all(UNITS)
        for line in sys.stdin:
            _answer_in_a_fork(line, say)
    else:
        _answer_or_crash(sys.stdin.read(), say)
    sys.stderr.flush()
    os._exit(0)


def _end_with_parent(parent: int) -> None:
    """Nobody waits for an answer when the process that asked was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _load_libraries() -> None:
    """What every trace needs. Python does not look for garbage meanwhile, nor among all this later: that takes a quarter of the time."""
    gc.disable()
    import transformers.masking_utils  # noqa: F401, PLC0415
    from transformers import AutoModelForCausalLM  # noqa: F401, PLC0415

    from fullstep.lab.trace.worker.session import trace  # noqa: F401, PLC0415

    gc.freeze()
    gc.enable()


def _answer_in_a_fork(text: str, say: Say) -> None:
    child = os.fork()
    if not child:
        _answer_or_crash(text, say)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        say({"crash": f"the process of this trace ended with {os.waitstatus_to_exitcode(status)}", "traceback": ""})


def _answer_or_crash(text: str, say: Say) -> None:
    try:
        say(_answer(text, lambda stage: say({"progress": stage})))
    except BaseException as error:
        say({"crash": f"{type(error).__name__}: {str(error)[:500]}", "traceback": traceback.format_exc(limit=-8)})


def _answer(text: str, report: Callable[[str], None]) -> dict[str, Any]:
    from fullstep.errors import InputError, UnsupportedError  # noqa: PLC0415 - after the first sign of life
    from fullstep.lab.trace.front.wire import decode_request, encode_fault, encode_trace  # noqa: PLC0415

    _load_libraries()
    from fullstep.lab.trace.worker.session import trace  # noqa: PLC0415

    try:
        return {"trace": encode_trace(trace(decode_request(text), report))}
    except UnsupportedError as error:
        return {"unsupported": [encode_fault(fault) for fault in error.faults]}
    except InputError as error:
        return {"faults": [encode_fault(fault) for fault in error.faults]}


if __name__ == "__main__":
    main()
