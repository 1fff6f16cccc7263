"""The verdict on one layout on one machine: fits, tight, does not fit, unknown, and the sentence that says why."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.ledger import OtherPeaks, Verdict
from fullstep.quantities import Bounds, format_gib

_OTHER_PEAKS = {"load": "while the model is loaded", "evaluation": "in the evaluation", "save": "while a checkpoint is saved"}


class Judgement(NamedTuple):
    """A verdict and why it is so, in words."""

    verdict: Verdict
    reason: str


def judge(needed: Bounds, other_peaks: OtherPeaks, usable_bytes: int | None, reserve_fraction: float) -> Judgement:
    """The verdict on the memory of one GPU.

    fits: even ``needed.high`` leaves the reserve. does_not_fit: even ``needed.low`` is more than there is. tight: between.
    A peak outside the steady step (load, evaluation, save) counts with its own figure.

    Args:
        needed: [bytes] what the steady step cannot do without on one GPU
        other_peaks: [bytes] on one GPU outside the steady step
        usable_bytes: [bytes] what torch can use of one GPU; None: not known
        reserve_fraction: [1] share of ``usable_bytes`` that is to stay free

    >>> judge(Bounds(8, 9, 10), OtherPeaks(), 12, 0.05).verdict
    'fits'
    >>> judge(Bounds(8, 9, 12), OtherPeaks(), 12, 0.05).verdict
    'tight'
    >>> judge(Bounds(8, 9, 10), OtherPeaks(load=13), 12, 0.05).verdict
    'does_not_fit'
    """
    if usable_bytes is None:
        return Judgement("unknown", "the memory of the GPU is not known: state machine.gpu or machine.gpu_memory_gib")
    there = format_gib(usable_bytes)
    if needed.low > usable_bytes:
        return Judgement("does_not_fit", f"the step needs {_span(needed)}, {there} are there")
    present = {name: peak for name, peak in other_peaks._asdict().items() if peak is not None}
    worst = max(present, key=lambda name: present[name], default=None)
    if worst is not None and present[worst] > usable_bytes:
        return Judgement("does_not_fit", f"{format_gib(present[worst])} are needed {_OTHER_PEAKS[worst]}, {there} are there")
    limit = usable_bytes * (1 - reserve_fraction)
    if needed.high > limit:
        return Judgement("tight", f"the step needs {_span(needed)} of {there}, of which {reserve_fraction:.0%} are to stay free")
    if worst is not None and present[worst] > limit:
        what = f"{format_gib(present[worst])} are needed {_OTHER_PEAKS[worst]}"
        return Judgement("tight", f"{what}, of {there}, of which {reserve_fraction:.0%} are to stay free")
    return Judgement("fits", f"the step needs {_span(needed)} of {there}")


def judge_pilot(judgement: Judgement) -> Judgement:
    """The verdict on a worksheet whose step was measured on its own card: it ran, so that it is at least tight.

    >>> judge_pilot(Judgement("does_not_fit", "the step needs 81.0 GiB, 79.0 GiB are there")).verdict
    'tight'
    """
    if judgement.verdict != "does_not_fit":
        return judgement
    return Judgement("tight", f"the pilot ran, although by its figures and the formulas {judgement.reason}")


def judge_replay(judgement: Judgement, out_of_memory: str) -> Judgement:
    """The verdict on a traced step: where its replay on the card ran out of memory, it does not simply fit.

    Args:
        judgement: by what the step needs
        out_of_memory: what found no room, for people; empty: everything did

    >>> judge_replay(Judgement("fits", "the step needs 70.0 GiB of 79.0 GiB"), "2.0 GiB in backward").verdict
    'tight'
    """
    if not out_of_memory or judgement.verdict != "fits":
        return judgement
    return Judgement("tight", f"{judgement.reason}, but its replay runs out of memory: {out_of_memory}")


def judge_host(needed_bytes: float, available_bytes: int | None, reserve_fraction: float) -> Verdict:
    """The verdict on the host RAM of one node, by the same rule; a single figure stands for all three bounds.

    >>> judge_host(100, None, 0.05), judge_host(100, 128, 0.05), judge_host(100, 101, 0.05), judge_host(100, 64, 0.05)
    ('unknown', 'fits', 'tight', 'does_not_fit')
    """
    if available_bytes is None:
        return "unknown"
    if needed_bytes > available_bytes:
        return "does_not_fit"
    return "fits" if needed_bytes <= available_bytes * (1 - reserve_fraction) else "tight"


def _span(needed: Bounds) -> str:
    low, high = format_gib(needed.low), format_gib(needed.high)
    return high if low == high else f"{low.removesuffix(' GiB')} to {high}"
