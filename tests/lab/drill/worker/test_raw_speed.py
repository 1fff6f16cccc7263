"""The raw yardstick writes what it says, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.real_classes


@pytest.mark.parametrize("where", ["folder", "url"])
def test_it_measures_and_takes_its_files_away(where: str, tmp_path: Path) -> None:
    from fullstep.lab.drill.worker.raw_speed import raw_speed  # noqa: PLC0415 - the libraries of the extra lab

    found = raw_speed(str(tmp_path) if where == "folder" else f"file://{tmp_path}", 20_000_001)
    assert found["bytes"] == 20_000_001
    assert 0 < found["read_seconds"] < 60
    assert 0 < found["write_seconds"] < 60
    assert list(tmp_path.iterdir()) == []
