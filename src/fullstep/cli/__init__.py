"""The door from the terminal: one file per command, imported only when that command is called.

Exit codes: 0 something fits, or all as asked; 2 the input is at fault; 3 does not fit; 4 a process of an experiment died or timed out;
1 a fault of ours; 128 + n stopped by signal n.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

EXIT_OK = 0
EXIT_OURS = 1
EXIT_INPUT = 2
EXIT_DOES_NOT_FIT = 3
EXIT_LAB = 4
_STOPPED_BY_SIGINT = 128 + 2

COMMANDS: dict[str, str] = {
    "plan": "the main job: layouts of the worksheet's machine, or machines on the market, ranked; the bill",
    "estimate": "one worksheet exactly as written; two are compared; --jsonl answers thousands",
    "largest": "the largest micro-batch, row length, rank or model that fits",
    "trace": "one full step of the real model class, no GPU, no weights; needs the extra lab",
    "probe": "real full steps on real hardware, beside estimate and trace; needs the extra lab",
    "drill": "saves, kills and resumes a training in real processes: does it go on as if nothing happened? needs the extra lab",
    "evidence": "what was measured: lists, compares and validates records of probes",
    "link": "times collectives between real ranks, of one node or several, by message size; needs the extra lab",
    "data": "a data set's lengths of rows, and what padding and packing make of them",
    "export": "launch files of a worksheet for skypilot, dstack, slurm or torchrun",
    "offers": "who rents which machine at what price, seen when; refresh fetches live prices",
    "init": "a blank worksheet, every key explained",
}
_TOP_HELP = """usage: fullstep COMMAND [WORKSHEET] [options]

Choose the GPUs for fine-tuning a language model by the peak memory of the full step.

commands:
{commands}

options:
  -h, --help  this text; fullstep COMMAND --help for one command
  --version   the version

A worksheet is a TOML, YAML or JSON file, or - for standard input; its keys are also flags:
  fullstep plan --model meta-llama/Llama-3.1-8B --method lora --gpu H100-SXM --gpus 8 --sequence-tokens 4096
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code. Nothing that goes wrong shows a traceback unless FULLSTEP_DEBUG is set."""
    try:
        from fullstep.cli.doorway import guarded  # noqa: PLC0415  (keeps `import fullstep.cli` free of everything)

        words = list(sys.argv[1:] if arguments is None else arguments)
        return guarded(lambda: _run(words))
    except KeyboardInterrupt:  # before the door is there, or on its way out
        return _STOPPED_BY_SIGINT


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1 and words[0] == "help" and words[1] in COMMANDS:
            return _run_command(words[1], ["--help"])
        commands = "\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items())
        sys.stdout.write(_TOP_HELP.format(commands=commands))
        return EXIT_OK if words else EXIT_INPUT
    if words[0] in ("--version", "-V"):
        from fullstep import __version__  # noqa: PLC0415

        sys.stdout.write(f"fullstep {__version__}\n")
        return EXIT_OK
    if words[0] not in COMMANDS:
        _unknown_command(words[0])
    return _run_command(words[0], words[1:])


def _run_command(name: str, words: list[str]) -> int:
    from importlib import import_module  # noqa: PLC0415

    from fullstep.cli.arguments import ArgumentParser  # noqa: PLC0415

    command = import_module(f"fullstep.cli.{name}")
    parser = ArgumentParser(name, command.__doc__ or "")
    command.add_arguments(parser)
    own, after = words, None
    takes_command = getattr(command, "TAKES_COMMAND", False)
    if takes_command and "--" in words:
        own, after = words[: words.index("--")], words[words.index("--") + 1 :]
    elif takes_command:
        from fullstep.cli.dashes import require_dashes  # noqa: PLC0415

        require_dashes(name, words, parser)
    arguments = parser.parse_args(own)
    if takes_command:
        arguments.command = after
    code: int = command.run(arguments)
    return code


def _unknown_command(word: str) -> NoReturn:
    from difflib import get_close_matches  # noqa: PLC0415

    from fullstep.errors import Fault, InputError  # noqa: PLC0415

    near = get_close_matches(word[:60], COMMANDS, 1)
    hint = f'Did you mean "{near[0]}"?' if near else ""
    raise InputError(Fault("command line", f'no command is called "{word[:60]}"', ", ".join(COMMANDS), hint))


__all__ = ["COMMANDS", "EXIT_DOES_NOT_FIT", "EXIT_INPUT", "EXIT_LAB", "EXIT_OK", "EXIT_OURS", "main"]
