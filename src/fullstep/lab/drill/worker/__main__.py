"""One rank: reads its leg, goes through it, and leaves a record. Started by torchrun; ends when whoever started the drill is gone."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Say = Callable[[dict[str, Any]], None]


def main() -> None:
    """Goes through the leg named on the command line. Whatever libraries print goes to standard error."""
    clock = {"entered": time.time()}
    messages = os.dup(1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    rank = int(os.environ.get("RANK", "0"))

    def say(message: dict[str, Any]) -> None:
        os.write(messages, (json.dumps({"rank": rank, **message}) + "\n").encode())  # one write: ranks share the pipe

    threading.Thread(target=_end_with_front, daemon=True).start()
    say({"process": os.getpid(), "progress": "loading torch and transformers"})
    code = 1
    try:
        _go(Path(sys.argv[1]), rank, say, clock)
        code = 0
    except BaseException as error:
        say(_complaint(error))
    sys.stderr.flush()
    os._exit(code)  # without the clean-ups of libraries, which may wait for ranks that are gone


def _go(path: Path, rank: int, say: Say, clock: dict[str, float]) -> None:
    from fullstep.lab.drill.leg import read_leg, record_path  # noqa: PLC0415 - after the first sign of life
    from fullstep.lab.drill.worker.session import go_through_leg  # noqa: PLC0415

    leg = read_leg(path)
    clock["imported"] = time.time()
    record = go_through_leg(leg, lambda stage: say({"progress": stage}), clock)
    target = record_path(leg.records, rank)
    target.with_suffix(".part").write_text(json.dumps(record), encoding="utf-8")
    target.with_suffix(".part").replace(target)
    say({"done": True})
    while leg.waits:
        time.sleep(1)


def _end_with_front() -> None:
    """Standard input is a pipe that only the front holds open: it closes when the front is gone, however it went."""
    try:
        while os.read(0, 1):
            pass
    except OSError:
        pass
    os._exit(1)


def _complaint(error: BaseException) -> dict[str, Any]:
    from fullstep.errors import FullstepError, InputError, UnsupportedError  # noqa: PLC0415
    from fullstep.resume import ResumeError  # noqa: PLC0415

    if isinstance(error, InputError):
        faults = [[fault.where, fault.found, fault.allowed, fault.remedy] for fault in error.faults]
        return {"unsupported" if isinstance(error, UnsupportedError) else "faults": faults}
    if isinstance(error, ResumeError):
        return {"failed": str(error)[:1000]}
    kind = "" if isinstance(error, FullstepError) else f"{type(error).__name__}: "
    return {"crash": f"{kind}{str(error)[:500]}", "traceback": traceback.format_exc(limit=-8)[-4000:]}


if __name__ == "__main__":
    main()
