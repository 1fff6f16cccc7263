"""Text from outside, made safe to print: what would steer a terminal or hide in a line is shown as an escape."""

from __future__ import annotations

from unicodedata import category

_UNSEEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
"""controls, format characters (among them those that turn the direction of writing), unassigned, private, halves of pairs, line ends"""


def printable(text: str) -> str:
    r"""The text with every character that is not to be seen as an escape; the same text where there is none.

    >>> printable("job.toml"), printable("a\x1b[31m\nb\u202e"), printable("naïve 模型")
    ('job.toml', 'a\\x1b[31m\\nb\\u202e', 'naïve 模型')
    """
    if text.isprintable():
        return text
    return "".join(_escaped(letter) if category(letter) in _UNSEEN else letter for letter in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
