"""Where a leg puts what is none of its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullstep.lab.drill.leg import Leg

pytestmark = pytest.mark.real_classes


def test_an_export_lies_on_the_disk_of_the_checkpoints_where_that_is_one_of_this_machine(leg: Leg, tmp_path: Path) -> None:
    from fullstep.lab.drill.worker.session import export_folder  # noqa: PLC0415 - the libraries of the extra lab

    here = leg._replace(records="records", folder=str(tmp_path))
    assert export_folder(here) == tmp_path
    assert export_folder(here._replace(folder=f"file://{tmp_path}")) == Path("records")
