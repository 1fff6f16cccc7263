"""The modules of validation/ are scripts beside the package; their folder is put on the path for these tests."""

from __future__ import annotations

import sys
from pathlib import Path

VALIDATION = str(Path(__file__).resolve().parents[2] / "validation")
if VALIDATION not in sys.path:
    sys.path.insert(0, VALIDATION)
