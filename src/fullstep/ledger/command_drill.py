"""What was seen of somebody's own training that was killed and started again."""

from __future__ import annotations

from typing import Literal, NamedTuple

CommandVerdict = Literal["passed", "failed", "undecided", "void"]


class ComparedStep(NamedTuple):
    """A step that both runs logged. Losses as they were printed, of all ranks that printed one."""

    step: float
    uninterrupted: tuple[str, ...]
    resumed: tuple[str, ...]


class CommandDrill(NamedTuple):
    """Three runs of a command: one undisturbed, one killed, one that goes on from there."""

    verdict: CommandVerdict
    reason: str
    remedy: str
    command: tuple[str, ...]
    by_epoch: bool
    """steps are epochs: the output tells no others"""
    first_step: float
    """logged by the undisturbed run"""
    last_step: float
    killed_after_step: float
    resumed_at_step: float | None
    """the first that the third run logged; None: it logged none"""
    compared: tuple[ComparedStep, ...]
    largest_difference: float
    """relative, between the losses of the undisturbed and the resumed run; says nothing where ``compared`` is empty"""
    difference_before_kill: float
    """the same between two undisturbed stretches: what the program differs by from itself"""
    checkpoint_bytes: int
    """everything in the folder of the checkpoints at the end"""
    checkpoint_files: int
    undisturbed_seconds: float
    killed_to_first_step_seconds: float | None
    """from the kill to the first loss that the third run logged"""
