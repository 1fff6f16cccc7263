"""One rank: reads its task, runs it, and leaves a record."""

from __future__ import annotations

from pathlib import Path

from fullstep.lab.ranks.worker import Say, leave_record, run_rank, write_record


def _go(path: Path, rank: int, say: Say) -> None:
    from fullstep.lab.probe.task import read_task, record_path  # noqa: PLC0415 - after the first sign of life
    from fullstep.lab.probe.worker.session import run_task  # noqa: PLC0415
    from fullstep.lab.ranks.joining import gathered  # noqa: PLC0415

    task = read_task(path)
    record = run_task(task, lambda stage: say({"progress": stage}))
    early = "out_of_memory" in record
    for each in [] if early else gathered(record)[1:]:
        write_record(record_path(task.records, each["rank"]), each)
    leave_record(record_path(task.records, rank), record, say, early=early)


if __name__ == "__main__":
    run_rank(_go)
