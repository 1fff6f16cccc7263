"""A data set in numbers, as JSON: tokens unless a key says otherwise, shares from 0 to 1."""

from __future__ import annotations

from typing import Any

from fullstep import __version__
from fullstep.datasets import DataProfile
from fullstep.report.json import SCHEMA


def profile_as_dict(profile: DataProfile) -> dict[str, Any]:
    """The whole profile as one object."""
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "files": list(profile.files),
        "columns": list(profile.forms),
        "rows": profile.rows,
        "empty_rows": profile.empty_rows,
        "parts_not_counted": profile.other_parts,
        "evidence": profile.evidence,
        "counted": profile.counted,
        "tokens": profile.tokens.as_whole(),
        "row_tokens": {
            "mean": profile.mean,
            "median": profile.median,
            "p90": profile.p90,
            "p99": profile.p99,
            "longest": profile.longest,
            "longest_at": profile.longest_at,
            "histogram": [{"up_to": tokens, "rows": rows} for tokens, rows in profile.histogram],
        },
        "sequence_tokens": profile.sequence_tokens,
        "micro_batch": profile.micro_batch,
        "cut": profile.cut._asdict(),
        "padding": profile.padding._asdict(),
        "packing": profile.packing._asdict(),
        "worksheet": {"packed": profile.packed_keys, "padded": profile.padded_keys},
        "assumptions": [assumption._asdict() for assumption in profile.assumptions],
    }
