"""One rank: reads its task, times the collectives, and leaves a record."""

from __future__ import annotations

from pathlib import Path

from fullstep.lab.ranks.worker import Say, leave_record, run_rank, write_record


def main() -> None:
    """Does the task named on the command line."""
    run_rank(_go)


def _go(path: Path, rank: int, say: Say) -> None:
    from fullstep.lab.link.task import read_task, record_path  # noqa: PLC0415 - after the first sign of life
    from fullstep.lab.link.worker.session import measure  # noqa: PLC0415
    from fullstep.lab.ranks.joining import gathered  # noqa: PLC0415

    task = read_task(path)
    record, *of_other_nodes = gathered(measure(task, lambda stage: say({"progress": stage})))
    for each in of_other_nodes:
        write_record(record_path(task.records, each["rank"]), each)
    leave_record(record_path(task.records, rank), record, say)


if __name__ == "__main__":
    main()
