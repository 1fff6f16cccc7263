"""What the tests of checkpoints share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
if TYPE_CHECKING:
    from processes import Nursery


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where tests with torch are not wanted, theirs are not even read: they import it at their head."""
    if config.option.markexpr != "not real_classes" or collection_path.suffix != ".py" or collection_path == Path(__file__):
        return None
    return "real_classes" in collection_path.read_text(encoding="utf-8") or None


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Starts trainings in processes, and leaves none of them running."""
    from processes import Nursery  # noqa: PLC0415 - by a name that the line above makes known

    with Nursery(tmp_path_factory.mktemp("nursery")) as started:
        yield started
