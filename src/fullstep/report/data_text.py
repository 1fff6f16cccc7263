"""A data set in numbers, for the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fullstep.datasets import DataProfile
from fullstep.evidence import Assumption
from fullstep.quantities import Bounds, counted
from fullstep.report.paper import Paper

_WIDEST_BAR = 40


def data_text(profile: DataProfile, paper: Paper) -> str:
    """Lengths, what is cut, padded and packed at the length of a row, and the keys of a worksheet."""
    lines = [paper.ink(piece, "bold") for piece in paper.sentence(_headline(profile), indent=0)]
    lines += ["", *_length_lines(profile, paper), "", *_histogram_lines(profile, paper), "", *_row_lines(profile, paper), ""]
    for rows, keys in (("packed", profile.packed_keys), ("padded", profile.padded_keys)):
        lines += paper.sentence(f"For a worksheet with {rows} rows:") + [f"    {line}" for line in toml_lines(keys)]
    lines += ["", *(line for assumption in profile.assumptions for line in paper.entry("Assumed", _assumption(assumption)))]
    return paper.finish(lines if profile.assumptions else lines[:-1])


def toml_lines(keys: Mapping[str, object]) -> list[str]:
    """Keys by their full names as a piece of a worksheet.

    >>> toml_lines({"data.examples": 3, "batch.packed": False})
    ['[data]', 'examples = 3', '[batch]', 'packed = false']
    """
    lines: list[str] = []
    for dotted, value in keys.items():
        section, _, key = dotted.partition(".")
        if f"[{section}]" not in lines:
            lines.append(f"[{section}]")
        lines.append(f"{key} = {json.dumps(value)}")  # true, false and numbers, which TOML writes like JSON
    return lines


def _headline(profile: DataProfile) -> str:
    files = profile.files[0] if len(profile.files) == 1 else f"{len(profile.files)} files from {profile.files[0]} on"
    return f"{files} · {counted(profile.rows, 'row')} · {' and '.join(profile.forms)}"


def _length_lines(profile: DataProfile, paper: Paper) -> list[str]:
    lines = paper.entry("Tokens", f"{_span(profile.tokens)} · {profile.counted}")
    lines += paper.entry(
        "Per row",
        f"mean {profile.mean:,.1f} · median {profile.median:,} · 90 % at most {profile.p90:,} · 99 % at most {profile.p99:,}",
    )
    lines += paper.entry("Longest", f"{profile.longest:,} tokens at {profile.longest_at}")
    if profile.empty_rows:
        lines += paper.entry("Empty", f"{counted(profile.empty_rows, 'row')}, left out here; a trainer may keep them")
    if profile.other_parts:
        lines += paper.entry("Not counted", f"{counted(profile.other_parts, 'part')} of messages without text (images, sound)")
    return lines


def _histogram_lines(profile: DataProfile, paper: Paper) -> list[str]:
    most = max(rows for _, rows in profile.histogram)
    wide = max(len(f"{tokens:,}") for tokens, _ in profile.histogram)
    lines = [paper.ink(f"  {'up to':>{wide + 2}}  rows", "dim")]
    for tokens, rows in profile.histogram:
        bar = paper.bar(rows / most, _WIDEST_BAR)
        lines.append(f"  {tokens:>{wide + 2},}  {_percent(rows / profile.rows):>7}  {bar}")
    return lines


def _row_lines(profile: DataProfile, paper: Paper) -> list[str]:
    cut, padding, packing = profile.cut, profile.padding, profile.packing
    lost = cut.tokens / (profile.mean * profile.rows)
    text = f"{counted(cut.rows, 'row')} ({_percent(cut.rows / profile.rows)}) longer; {cut.tokens:,} tokens lost ({_percent(lost)})"
    lines = [*paper.sentence(f"In rows of {profile.sequence_tokens:,} tokens:"), *paper.entry("Cut off", text if cut.rows else "nothing")]
    if profile.micro_batch == 1:
        batch = "none with one row a batch"
    else:
        shuffled, ordered = _percent(padding.shuffled_share), _percent(padding.in_order_share)
        batch = (
            f"{shuffled} up to the longest of {profile.micro_batch} rows, shuffled ({ordered} in the order of the file;"
            f" {padding.mean_row_tokens:,.0f} tokens a row)"
        )
    lines += paper.entry("Padding", f"{batch} · {_percent(padding.to_sequence_share)} up to {profile.sequence_tokens:,}")
    joined = f"{counted(packing.cut_rows, 'row')} one behind the other and cut, nothing lost"
    lines += paper.entry("Packed", f"{joined}: {_saved(packing.cut_saves_share)}")
    whole = f"{counted(packing.whole_rows, 'row')} of whole ones by best fit, {_percent(packing.whole_filled_share)} filled"
    return lines + paper.entry("", f"{whole}: {_saved(packing.whole_saves_share)}")


def _saved(share: float) -> str:
    if share < 0:
        return f"{1 - share:,.2g} times the steps of padded rows, which lose what is cut off"
    return f"{_percent(share)} fewer steps at the same rows a step"


def _assumption(assumption: Assumption) -> str:
    value = assumption.value
    shown = f"{value['likely']:g} ({value['low']:g}-{value['high']:g})" if isinstance(value, dict) else f"{value:,}"
    return f"{assumption.key} = {shown}; {assumption.why}"


def _span(tokens: Bounds) -> str:
    whole = tokens.as_whole()
    exact = whole["low"] == whole["high"]
    return f"{whole['likely']:,}" if exact else f"{whole['likely']:,} ({whole['low']:,}-{whole['high']:,})"


def _percent(share: float) -> str:
    """A share in percent; what is not nothing does not look like nothing.

    >>> _percent(0.5), _percent(0.00001), _percent(0)
    ('50.0 %', '< 0.1 %', '0.0 %')
    """
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
