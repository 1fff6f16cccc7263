"""Whether a training that was resumed is the one that was not interrupted: what has to be equal, and what rounding may change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fullstep.job import Settings
from fullstep.lab.drill.front.limits import WITHOUT_MOMENTS
from fullstep.lab.drill.front.seen import Digests, Seen
from fullstep.ledger.drill import DrillCheck, DrillControl, DrillVerdict

PARTS = ("scheduler", "rng", "moments", "loader")
"""what is left out in turn"""
_DIGESTS_OF = {"scheduler": "scheduler.", "rng": "rng.", "moments": "optimizer.state.", "loader": "loader."}
"""beginnings of the names of its digests"""
_IN_WORDS = {"scheduler": "the scheduler", "rng": "random number states", "moments": "the moments", "loader": "the data position"}
_RELATIVE_STEP = {"float32": 2.0**-23, "bfloat16": 2.0**-8}
_ROUNDINGS = 8
"""Sums in another order differ by a few roundings of a loss: at most 1.6e-7 was seen in float32 over 4 steps on 1, 2 and 4 ranks, and
2.3e-5 of the mildest fault (state rounded to bfloat16)."""
_SHOWN = 3


class Gate:
    """Relative difference of losses above which it is no rounding."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.limit = _ROUNDINGS * _RELATIVE_STEP[dtype]

    @property
    def why(self) -> str:
        """Where it comes from."""
        return f"{_ROUNDINGS} roundings of {self.dtype}"


def gate_of(settings: Settings, *, plain: bool) -> Gate:
    """Of a plain training (in float32 where the weights are), or of the worksheet's own.

    >>> Gate("float32").limit < 1e-6
    True
    """
    dtypes = {settings.trained_dtype} if plain else {settings.trained_dtype, settings.precision.weights, settings.precision.compute}
    return Gate("float32" if dtypes == {"float32"} else "bfloat16")


def control_of_control(one: Seen, other: Seen, saved_at: int, gate: Gate) -> DrillCheck:
    """The same training twice, without an interruption: whether equality can be asked for at all.

    ``holds`` is None where it cannot, and False where two such trainings are further apart than rounding brings them.
    """
    last = max(one.steps)
    what = "the same training twice, once without saving"
    early = differing(one.digests[str(saved_at)], other.digests[f"saved {saved_at}"])
    late = differing(one.digests[str(last)], other.digests[str(last)])
    if not early and not late:
        return DrillCheck("uninterrupted", what, True, f"bit for bit the same state after step {last}")
    apart = loss_difference(one, other)
    if early and apart <= gate.limit:
        found = f"not decidable bit for bit here: states differ though nothing was interrupted; losses by {apart:.1e} of {gate.limit:.1e}"
        return DrillCheck("uninterrupted", what, None, found)
    when = f"at step {saved_at}" if early else f"after the save at step {saved_at}, not before"
    return DrillCheck("uninterrupted", what, False, f"the trainings part {when}; losses differ by {apart:.1e}: {names(early or late)}")


class Truth(NamedTuple):
    """What a resumed training is compared with."""

    training: Seen
    """one that went on"""
    saved: Digests
    """of the state when it was saved"""
    saved_at: int
    """step"""
    exact: bool
    """two trainings that go on are bit for bit the same here"""
    gate: Gate
    """for where they are not"""


def resumption_checks(truth: Truth, resumed: Seen) -> list[DrillCheck]:
    """What has to hold on the same ranks in the same layout."""
    loaded = [_newest(resumed, truth.saved_at), _loaded(resumed.name, truth.saved, resumed.digests["loaded"])]
    return [*loaded, *_going_on_checks(truth, resumed)]


def _going_on_checks(truth: Truth, resumed: Seen) -> list[DrillCheck]:
    """Of the steps after loading."""
    leg, going_on = resumed.name, truth.training
    last = max(going_on.steps)
    checks = exact_checks(going_on, resumed)
    if not truth.exact:
        return [*checks, _within_gate(truth, resumed)]
    first = next((step for step, seen in sorted(resumed.steps.items()) if seen.loss != going_on.steps[step].loss), None)
    found = f"bit for bit the same in steps {min(resumed.steps)} to {last}"
    if first is not None:
        found = f"differ from step {first} on, by up to {loss_difference(going_on, resumed):.1e}"
    checks.append(DrillCheck(leg, "losses", first is None, found))
    other = differing(going_on.digests[str(last)], resumed.digests[str(last)])
    found = f"bit for bit the same: {len(going_on.digests[str(last)]):,} digests" if not other else names(other)
    return [*checks, DrillCheck(leg, f"state after step {last}", not other, found)]


def elsewhere_checks(truth: Truth, moved: Seen, mildest_fault: float) -> list[DrillCheck]:
    """What has to hold on other ranks or in another layout: the state is the same, and then rounding alone makes a difference.

    Args:
        truth: the same training on the old ranks
        moved: the one elsewhere
        mildest_fault: loss difference that a fault made on purpose gives; where the gate would let it pass, losses prove nothing
    """
    losses = _within_gate(truth, moved)
    if losses.holds and mildest_fault <= truth.gate.limit:
        found = f"{losses.found}, and a fault made on purpose gives {mildest_fault:.1e}: here the state after loading alone proves anything"
        losses = losses._replace(holds=None, found=found)
    return [
        _newest(moved, truth.saved_at),
        _loaded(moved.name, _without_rng(truth.saved), _without_rng(moved.digests["loaded"])),
        *exact_checks(truth.training, moved),
        losses,
    ]


def _within_gate(truth: Truth, other: Seen) -> DrillCheck:
    apart, gate = loss_difference(truth.training, other), truth.gate
    found = f"largest difference {apart:.1e} in steps {min(other.steps)} to {max(other.steps)}; the gate is {gate.limit:.1e}, {gate.why}"
    return DrillCheck(other.name, "losses", apart <= gate.limit, found)


def exact_checks(truth: Seen, other: Seen) -> list[DrillCheck]:
    """Rows and learning rates, which are the same on any ranks and in any arithmetic."""
    checks = []
    for what, field in (("rows of each step", "rows"), ("learning rates", "rates")):
        wrong = [step for step, seen in sorted(other.steps.items()) if getattr(seen, field) != getattr(truth.steps[step], field)]
        found = f"the same in {len(other.steps)} steps" if not wrong else f"differ from step {wrong[0]} on"
        checks.append(DrillCheck(other.name, what, not wrong, found))
    return checks


def control(part: str, truth: Truth, tampered: Seen | None) -> DrillControl:
    """Whether the drill notices that a part was left out: right after loading, and by what the training does then.

    Args:
        part: of :data:`PARTS`
        truth: the training that was not interrupted
        tampered: the one without the part; None: it was not run, because there is none
    """
    if tampered is None:
        return DrillControl(part, None, f"this training has none of {_IN_WORDS[part]}")
    shows = [name for name in differing(truth.saved, tampered.digests["loaded"]) if name.startswith(_DIGESTS_OF[part])]
    failed = [f"{check.what} {check.found}" for check in _going_on_checks(truth, tampered) if check.holds is False]
    if shows and failed:
        return DrillControl(part, True, f"state after loading; {failed[0]}")
    if shows and not truth.exact:  # bits cannot be asked for, and a gate for rounding lets more pass
        return DrillControl(part, True, "state after loading; what followed stayed within the gate")
    if failed:
        return DrillControl(part, False, f"the state after loading looks whole, though {_IN_WORDS[part]} were left out")
    return DrillControl(part, False, f"without {_IN_WORDS[part]} the training went on the same")


def has_part(part: str, settings: Settings) -> bool:
    """Whether there is anything to leave out."""
    return part != "moments" or settings.optimizer.name not in WITHOUT_MOMENTS


def verdict_of(checks: Sequence[DrillCheck], controls: Sequence[DrillControl]) -> tuple[DrillVerdict, str]:
    """The whole, and its reason.

    >>> ok, lost = DrillCheck("resumed", "losses", True, ""), DrillControl("rng", False, "the training went on the same")
    >>> verdict_of([ok], [DrillControl("rng", True, "")])[0], verdict_of([ok], [lost])[0], verdict_of([ok._replace(holds=False)], [lost])[0]
    ('passed', 'void', 'failed')
    """
    failed = [check for check in checks if check.holds is False]
    if failed:
        more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
        return "failed", f"{failed[0].leg}: {failed[0].what}: {failed[0].found}{more}"
    blind = [each for each in controls if each.caught is False]
    if blind:
        return "void", f"everything compared equal, but so would a fault: {'; '.join(each.found for each in blind)}"
    undecided = {check.leg for check in checks if check.holds is None}
    if "uninterrupted" in undecided:
        return "passed", "to within rounding: bit for bit cannot be decided here, since two uninterrupted trainings differ"
    if undecided:
        legs = ", ".join(sorted(undecided))
        return "passed", f"bit for bit; {legs} by the state after loading alone, since losses cannot tell a fault there"
    return "passed", ""


def loss_difference(one: Seen, other: Seen) -> float:
    """The largest of any step that both have, relative; infinite where one of them is no number, or they have none in common."""
    both = one.steps.keys() & other.steps.keys()
    largest = 0.0 if both else math.inf
    for step in both:
        a, b = one.steps[step].loss, other.steps[step].loss
        if not (math.isfinite(a) and math.isfinite(b)):
            return math.inf
        if a != b:
            largest = max(largest, abs(a - b) / max(abs(a), abs(b)))
    return largest


def differing(one: Digests, other: Digests) -> list[str]:
    """Names of what differs, or is in one of them only.

    >>> differing({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"})
    ['b', 'c']
    """
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def names(differ: Sequence[str]) -> str:
    """The first of them, and how many there are."""
    more = f" and {len(differ) - _SHOWN:,} more" if len(differ) > _SHOWN else ""
    return f"{', '.join(differ[:_SHOWN])}{more} differ"


def _newest(resumed: Seen, saved_at: int) -> DrillCheck:
    step = int(resumed.ranks[0]["loaded"]["step"])
    found = f"step {step}" if step == saved_at else f"step {step}, not {saved_at}"
    return DrillCheck(resumed.name, "newest checkpoint", step == saved_at, found)


def _loaded(leg: str, saved: Digests, loaded: Digests) -> DrillCheck:
    other = differing(saved, loaded)
    found = f"bit for bit as it was saved: {len(saved):,} digests" if not other else names(other)
    return DrillCheck(leg, "state after loading", not other, found)


def _without_rng(digests: Digests) -> dict[str, str]:
    """Random numbers are each rank's own: on other ranks they cannot be the same."""
    return {name: digest for name, digest in digests.items() if not name.startswith("rng.")}
