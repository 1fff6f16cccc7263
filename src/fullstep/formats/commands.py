"""What is run: the user's command, a few steps of it, and how a finished checkpoint is told from one that was cut off."""

from __future__ import annotations

import re

from fullstep.job.job import Framework

DEFAULT_COMMAND = 'train.py --output_dir "$CHECKPOINT_DIR" ${RESUME_FROM:+--resume_from_checkpoint "$RESUME_FROM"}'
"""an example in the words of transformers' Trainer"""
DEFAULT_SETUP = "if [ -f requirements.txt ]; then pip install -r requirements.txt; fi"
PROBE_SETUP = "pip install '.[lab]'"
"""of fullstep's own checkout, which goes along"""
_SHORT = '--max_steps 5 --output_dir "$MEASURE_DIR"'
_SHORT_BY_FRAMEWORK: dict[Framework, str] = {
    "litgpt": '--train.max_steps 5 --out_dir "$MEASURE_DIR"',
    "llamafactory": 'max_steps=5 output_dir="$MEASURE_DIR"',
    "megatron": '--train-iters 5 --save "$MEASURE_DIR"',
    "torchtitan": '--training.steps 5 --job.dump_folder "$MEASURE_DIR"',
    "torchtune": 'max_steps_per_epoch=5 epochs=1 output_dir="$MEASURE_DIR"',
}
"""arguments that end a run after a few steps, by the framework's own options; others: those of transformers' Trainer"""
_FINISHED_FILE: dict[Framework, str] = {
    "transformers": "trainer_state.json",
    "axolotl": "trainer_state.json",
    "llamafactory": "trainer_state.json",
    "unsloth": "trainer_state.json",
    "torchtitan": ".metadata",
}
"""what is written last into a checkpoint.

Source:
    transformers, Trainer._save_checkpoint; torch.distributed.checkpoint, FileSystemWriter.finish
"""


def measured_command(command: str, measure: str | None, framework: Framework) -> str | None:
    """The command line of the short step; None: there is none.

    Arguments can be put behind one command only: a line with several of them, a comment or braces has no short step unless it is stated.

    >>> measured_command("train.py && echo done", None, "torch")
    >>> measured_command("train.py", "--max_steps 3", "torch"), measured_command("train.py", "short.py", "torch")
    ('train.py --max_steps 3', 'short.py')
    >>> measured_command("train.py", "none", "torch")

    Args:
        command: of the long run
        measure: a whole command line; from ``-`` on: arguments for ``command``; ``none``; None: by the framework
        framework: whose options are guessed
    """
    wanted = _SHORT_BY_FRAMEWORK.get(framework, _SHORT) if measure is None else measure.strip()
    if wanted == "none":
        return None
    if measure is None or wanted.startswith("-"):
        return f"{command} {wanted}" if is_one_command(command) else None
    return wanted


def is_one_command(line: str) -> bool:
    """No sign in it, outside of quotes, that ends a command or begins another one.

    >>> [is_one_command(line) for line in ("train.py --x 'a && b'", "a.py; b.py", "train.py # now", "{ a; }", 'x "$Y" ${Z:+--z}')]
    [True, False, False, False, True]
    """
    bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\$\{[^}]*\}", "", line)
    return re.search(r"[;&|<>(){}`]|(?:^|\s)#", bare) is None


def finished_file_of(framework: Framework) -> str | None:
    """What the framework writes last into the folder of a checkpoint; None: not known."""
    return _FINISHED_FILE.get(framework)
