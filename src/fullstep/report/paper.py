"""The terminal as paper: its width, whether it has colours, and which signs it can print."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from fullstep.errors import printable

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_ASCII = str.maketrans(
    {"·": "|", "█": "#", "–": "-", "…": "...", "×": "x", "≤": "<=", "▼": "v", "│": "|", "└": "+", "─": "-"}
    | dict(zip("▁▂▃▄▅▆▇", "...::##", strict=True))
)
_EIGHTHS = " ▁▂▃▄▅▆▇█"
LEAST_WIDTH = 80
LABEL_WIDTH = 15
_MARGIN = 4
_MOST_LINES, _LONGEST_NOTE = 40, 2000
"""signs before a line that stands as it is"""


class Paper(NamedTuple):
    """How to print on one stream. The default prints the same text everywhere: 100 columns, no colours."""

    width: int = 100
    colours: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Paper:
        """The paper that a stream is: as wide as COLUMNS says, else as the terminal, else 100, within 80 and 140; colours only on a
        terminal and without NO_COLOR; ASCII where it cannot print bars."""
        terminal = stream.isatty()
        try:
            stated = int(os.environ.get("COLUMNS", "0"))
            columns = stated if stated > 0 else os.get_terminal_size(stream.fileno()).columns if terminal else 100
        except (OSError, ValueError):
            columns = 100
        coloured = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(max(LEAST_WIDTH, min(columns, 140)), coloured, _can_print_bars(stream))

    def ink(self, text: str, *colours: str) -> str:
        """The text in the given colours, where there are any."""
        text = printable(text)
        if not self.colours or not colours:
            return text
        return f"\x1b[{';'.join(_CODES[colour] for colour in colours)}m{text}\x1b[0m"

    def bar(self, share: float, longest: int = 10) -> str:
        """A bar for a share between 0 and 1; what is not nothing shows at least one sign.

        >>> Paper().bar(0.5, longest=4), Paper(unicode=False).bar(0.01)
        ('██', '#')
        """
        length = min(longest, max(round(share * longest), 1 if share > 0 else 0))
        return ("█" if self.unicode else "#") * length

    @staticmethod
    def columns(shares: Sequence[float], height: int) -> list[str]:
        """Upright bars for shares between 0 and 1, side by side, in lines from the top down; an eighth of a line can be told apart.

        >>> Paper.columns([0.5, 1, 0.25], height=2)
        [' █ ', '██▄']
        """
        filled = [max(round(share * height * 8), 1 if share > 0 else 0) for share in shares]
        return ["".join(_EIGHTHS[max(0, min(8, size - 8 * line))] for size in filled) for line in reversed(range(height))]

    def finish(self, lines: list[str]) -> str:
        """The lines as one text with a line end, in signs that the stream can print."""
        if not self.colours:
            lines = [printable(line) for line in lines]
        text = "\n".join(line.rstrip() for line in lines) + "\n"
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "replace").decode("ascii")

    def entry(self, label: str, text: str) -> list[str]:
        """A label on the left and a text that wraps beside it.

        >>> Paper(width=80).entry("at", "forward")
        ['  at             forward']
        """
        room = self.width - LABEL_WIDTH - 2
        pieces = self.wrapped(text, room)
        first = f"  {label:<{LABEL_WIDTH}}{pieces[0]}"
        return [first, *(" " * (LABEL_WIDTH + 2) + piece for piece in pieces[1:])]

    def note(self, label: str, text: str) -> list[str]:
        """An entry whose further lines, such as a program's output, stand below it behind a bar, cut where they are too long or too many.

        >>> Paper(width=80).note("Note", "it ended with:\\nKilled")
        ['  Note           it ended with:', '    | Killed']
        """
        first, *block = text.split("\n")
        more = [f"... and {len(block) - _MOST_LINES} more"] if len(block) > _MOST_LINES else []
        lines = (cut(line, self.width - _MARGIN - 2) for line in (*block[:_MOST_LINES], *more))
        return [*self.entry(label, cut(first, _LONGEST_NOTE)), *(" " * _MARGIN + f"| {line}" for line in lines)]

    @staticmethod
    def wrapped(text: str, room: int) -> list[str]:
        """A text in lines of at most ``room`` signs; at least one line."""
        return textwrap.wrap(printable(text), room, break_long_words=True, break_on_hyphens=False) or [""]

    def sentence(self, text: str, indent: int = 2) -> list[str]:
        """A sentence of its own, wrapped."""
        margin = " " * indent
        return textwrap.wrap(
            printable(text), self.width, initial_indent=margin, subsequent_indent=margin, break_long_words=True, break_on_hyphens=False
        )


def cut(text: str, width: int) -> str:
    """A text of at most ``width`` signs; where some are left out, the last one says so.

    >>> cut("backward", 5)
    'back…'
    """
    text = printable(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def cut_front(text: str, width: int) -> str:
    """The same for a dotted name, whose end says more than its beginning.

    >>> cut_front("model.layers.*.mlp", 8)
    '….*.mlp'
    """
    text = printable(text)
    if len(text) <= width:
        return text
    tail = text[len(text) - width + 1 :]
    return "…" + (tail[tail.index(".") :] if "." in tail[:-1] else tail)


def _can_print_bars(stream: TextIO) -> bool:
    try:
        "".join(map(chr, _ASCII)).encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
