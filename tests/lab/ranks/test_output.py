"""What a program prints, in lines, however it comes."""

from __future__ import annotations

import sys

from fullstep.lab.ranks import output
from fullstep.lab.ranks.output import Output, command_started

PRINTS = """
import sys, time
for piece in (b"one\\ntw", b"o", b"\\nbar 1\\rbar 2\\r", b"x" * 3000, b"y" * 3000 + b"z\\n", b"last"):
    sys.stdout.buffer.write(piece)
    sys.stdout.flush()
    time.sleep(0.05)
"""


def heard(program: str) -> list[str]:
    with command_started([sys.executable, "-c", program], {}) as family:
        found = Output(family)
        lines = [line for line in found.lines() if line is not None]
        found.take_rest(ended=True)
        return [*lines, *found.left()]


def test_lines_that_come_in_pieces_are_whole() -> None:
    assert heard(PRINTS) == ["one", "two", "bar 1", "bar 2", "x" * 3000 + "y" * 3000 + "z", "last"]


def test_of_a_line_without_an_end_the_last_part_is_kept(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(output, "_LONGEST_LINE_BYTES", 1000)
    *_, kept, last = heard(PRINTS)
    assert last == "last" and kept.endswith("y" * 900 + "z") and len(kept) <= 1000 + 2**16 and len(kept) < 6001


def test_a_program_that_prints_much_is_not_held_up_by_looks_at_processes(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    looks: list[int] = []
    with command_started([sys.executable, "-c", "print('x' * 20_000_000)"], {}) as family:
        monkeypatch.setattr(family, "take_note", lambda: looks.append(1))
        chunks = sum(1 for line in Output(family).lines() if line is None)
    assert chunks > 100 > 10 * len(looks)
