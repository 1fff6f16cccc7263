"""One rank: reads its leg, goes through it, and leaves a record."""

from __future__ import annotations

import time
from pathlib import Path

from fullstep.lab.ranks.worker import Say, leave_record, run_rank

_CLOCK = {"entered": time.time()}


def main() -> None:
    """Goes through the leg named on the command line."""
    run_rank(_go, _is_of_checkpoints)


def _go(path: Path, rank: int, say: Say) -> None:
    from fullstep.lab.drill.leg import read_leg, record_path  # noqa: PLC0415 - after the first sign of life
    from fullstep.lab.drill.worker.session import go_through_leg  # noqa: PLC0415

    leg = read_leg(path)
    _CLOCK["imported"] = time.time()
    record = go_through_leg(leg, lambda stage: say({"progress": stage}), _CLOCK)
    leave_record(record_path(leg.records, rank), record, say)
    while leg.waits:
        time.sleep(1)


def _is_of_checkpoints(error: BaseException) -> bool:
    from fullstep.resume import ResumeError  # noqa: PLC0415 - after the first sign of life

    return isinstance(error, ResumeError)


if __name__ == "__main__":
    main()
