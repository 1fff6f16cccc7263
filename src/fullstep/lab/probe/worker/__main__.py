"""One rank: reads its task, runs it, and leaves a record."""

from __future__ import annotations

from pathlib import Path

from fullstep.lab.ranks.worker import Say, leave_record, run_rank


def _go(path: Path, rank: int, say: Say) -> None:
    from fullstep.lab.probe.task import read_task, record_path  # noqa: PLC0415 - after the first sign of life
    from fullstep.lab.probe.worker.session import run_task  # noqa: PLC0415

    task = read_task(path)
    record = run_task(task, lambda stage: say({"progress": stage}))
    leave_record(record_path(task.records, rank), record, say, early="out_of_memory" in record)


if __name__ == "__main__":
    run_rank(_go)
