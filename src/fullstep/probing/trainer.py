"""The same for transformers' Trainer: a callback, which also tells evaluation and saving from steps.

from fullstep.probing import ProbeCallback

Trainer(model, arguments, train_dataset=data, callbacks=[ProbeCallback("evidence", steps=20)]).train()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from fullstep.probing.watch import WATCHING, Watch


class ProbeCallback(TrainerCallback):
    """Watches the Trainer's steps.

    Where the whole program is watched already (``fullstep probe -- CMD``), it only tells what is evaluation and what is saving.

    Args:
        folder: for the files of all ranks; it is made where it is not there
        steps: ends training after so many; None: it ends by itself
    """

    def __init__(self, folder: str | Path, *, steps: int | None = None) -> None:
        self._folder, self._steps = Path(folder), steps
        self._own: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The model is there."""
        if self._own is not None:  # an error ended the training before, and somebody caught it
            self._own.end()
            self._own = None
        if not WATCHING:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._own = Watch(self._folder, steps=self._steps)
            self._own.begin()
        self._watch.told_loaded()

    @property
    def _watch(self) -> Watch:
        return WATCHING[-1]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Enough steps end the training, as its own last one would."""
        if self._own is not None and self._own.is_done:
            control.should_training_stop = True
        return control

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """It is over."""
        self._told("evaluation")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """It is over."""
        self._told("save")

    def _told(self, phase: str) -> None:
        if WATCHING:
            self._watch.told(phase)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Looks no more."""
        if self._own is not None:
            self._own.end()
            self._own = None
