"""What saving and loading report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["sync", "thread", "process"]


@dataclass(slots=True, kw_only=True)
class Saved:
    """One save, as this rank saw it. Until ``published`` is true it does not count."""

    step: int
    folder: str
    mode: Mode
    bytes: int = 0
    """of all files, once published"""
    files: int = 0
    waited_seconds: float = 0.0
    """for the upload of the save before"""
    state_seconds: float = 0.0
    """collecting the state"""
    stall_seconds: float = 0.0
    """training stood still, all of it: waiting, collecting, staging, and what was written meanwhile"""
    write_seconds: float = 0.0
    """from the end of staging (sync: of collecting) until published"""
    digest_seconds: float = 0.0
    """of the slowest rank, inside write_seconds: computing digests, as far as writing waited for them"""
    published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One load, as this rank saw it."""

    step: int
    folder: str
    bytes: int
    files: int
    ranks: int
    """that saved it"""
    verify_seconds: float
    """reading all files and comparing their digests"""
    load_seconds: float
    """torch.distributed.checkpoint"""
    apply_seconds: float
    """putting it into model, optimizer and the rest"""
    rng: Literal["restored", "new streams", "left out"]
    """"new streams": the number of ranks is another, and random numbers are per rank"""
    skipped: tuple[tuple[str, str], ...] = field(default=())
    """newer folders that were passed over, and why"""
