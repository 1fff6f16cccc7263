"""Memory is that of the process and of all that it started."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fullstep.lab.drill.worker.memory import family, held_bytes, watched_memory

pytestmark = pytest.mark.skipif(held_bytes() is None, reason="this system does not say")
MB = 10**6


def test_what_is_there_only_for_a_while_is_seen() -> None:
    with watched_memory() as peak:
        block = bytearray(os.urandom(1)) * (200 * MB)
        seen = held_bytes()
        del block
    assert peak.before_bytes is not None
    assert peak.most_bytes is not None
    assert seen is not None
    assert seen - peak.before_bytes > 150 * MB


def test_children_count() -> None:
    code = "import sys; block = bytearray(b'x') * (100 * 10**6); print('there', flush=True); sys.stdin.read()"
    before = held_bytes()
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = held_bytes()
        assert child.pid in family(os.getpid())
        child.communicate()
    assert before is not None
    assert during is not None
    assert during - before > 80 * MB
