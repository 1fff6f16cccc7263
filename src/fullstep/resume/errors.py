"""What can go wrong with a checkpoint. Nothing of the running training was changed unless the message says so."""

from __future__ import annotations

from fullstep.errors import FullstepError


class ResumeError(FullstepError):
    """Something is wrong with a checkpoint or its folder."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what}. {remedy}" if remedy else what)


class SaveError(ResumeError):
    """A checkpoint was not completed; those before it are as they were."""


class LoadError(ResumeError):
    """A checkpoint cannot be loaded, or not into this model."""


class IncompleteError(LoadError):
    """A folder has no manifest: its save never ended, or something else wrote it."""


class UnreadableError(LoadError):
    """Reading failed, which says nothing about what is there: it may pass."""
