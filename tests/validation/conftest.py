"""The modules of validation/ and tools/ are scripts beside the package; their folders are put on the path for these tests."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [folder for folder in (str(ROOT / "validation"), str(ROOT / "tools")) if folder not in sys.path]
