"""The worksheet of a command: a file, flags instead of one, or flags over it."""

from __future__ import annotations

import argparse
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.job import (
    Job,
    Worksheet,
    apply_overrides,
    complete,
    flag_overrides,
    read_mapping,
    set_overrides,
    worksheet_flags,
    worksheet_from_mapping,
)

_KEY = "key "
"""what the namespace calls a worksheet key, so that no key can collide with an option of the command"""


def add_worksheet_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """The worksheet argument(s), ``--set`` and a flag for every key, grouped by section in the help."""
    help_text = "a TOML, YAML or JSON file, or - for standard input"
    if several:
        parser.add_argument("worksheets", nargs="*", metavar="WORKSHEET", help=f"{help_text}; two or more are compared")
    else:
        parser.add_argument("worksheets", nargs="?", metavar="WORKSHEET", help=help_text)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key by its full name, as often as needed")
    groups: dict[str, Any] = {}
    for flag in worksheet_flags():
        section = flag.dotted.partition(".")[0]
        if section not in groups:
            groups[section] = parser.add_argument_group(f"keys of [{section}]")
        groups[section].add_argument(flag.flag, dest=_KEY + flag.dotted, metavar=flag.metavar, help=flag.help)


def flag_of(arguments: argparse.Namespace, dotted: str) -> str | None:
    """What the flag of a key says, as it was typed; None: it was not given.

    Args:
        arguments: of the command line
        dotted: the key's full name
    """
    text: str | None = vars(arguments).get(_KEY + dotted)
    return text


def worksheet_from(arguments: argparse.Namespace, model_if_none: str | None = None) -> Worksheet:
    """The one worksheet of a command.

    Args:
        arguments: of the command line
        model_if_none: the model of a worksheet that states none; None: it must state one

    Raises:
        InputError: it cannot be read, or what the file and the flags say together is not allowed
    """
    overrides, faults = _overrides(arguments)
    worksheet = None
    try:
        worksheet = _worksheet(arguments.worksheets, overrides, model_if_none, bool(faults))
        if faults:
            complete(worksheet)
    except InputError as error:
        faults.extend(error.faults)
    if faults or worksheet is None:
        raise InputError(*faults)
    return worksheet


def jobs_from(arguments: argparse.Namespace) -> list[Job]:
    """All worksheets of a command, completed; flags are laid over each of them.

    Raises:
        InputError: one cannot be read or is not allowed; the faults of all of them together
    """
    overrides, faults = _overrides(arguments)
    if arguments.worksheets.count("-") > 1:
        faults.append(Fault("-", "standard input twice", "once", "It can be read only once."))
    jobs: list[Job] = []
    for path in dict.fromkeys(arguments.worksheets) if faults else arguments.worksheets or [None]:
        try:
            jobs.append(complete(_worksheet(path, overrides, None, bool(faults))))
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError(*faults)
    return jobs


def states_anything(arguments: argparse.Namespace) -> bool:
    """Whether the command line names a worksheet or states a key."""
    flags = any(name.startswith(_KEY) and text is not None for name, text in vars(arguments).items())
    return bool(arguments.worksheets or arguments.set or flags)


def _worksheet(path: str | None, overrides: dict[str, Any], model_if_none: str | None, tried: bool) -> Worksheet:
    """The worksheet in a file, or of flags alone. ``tried``: keys were given that could not be read, so that there is more than none."""
    if path is None:
        if not overrides:
            example = "fullstep plan --model meta-llama/Llama-3.1-8B --gpu H100-SXM --gpus 8"
            none = Fault("worksheet", "none is given", "a file, - for standard input, or flags", f"For example: {example}")
            raise InputError(*([] if tried else [none]))
        return worksheet_from_mapping(_with_model(apply_overrides({}, overrides), model_if_none), "flags")
    mapping, origin, lines = read_mapping(path)
    return worksheet_from_mapping(_with_model(apply_overrides(mapping, overrides), model_if_none), origin, lines)


def _with_model(mapping: Any, model_if_none: str | None) -> Any:
    if model_if_none is None or not isinstance(mapping, dict) or mapping.get("model"):
        return mapping
    return {**mapping, "model": {"name": model_if_none}}


def _overrides(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Fault]]:
    """The keys that the command line states, and what of it names no key."""
    stated = vars(arguments)
    overrides = flag_overrides(
        (name.removeprefix(_KEY), text) for name, text in stated.items() if name.startswith(_KEY) and text is not None
    )
    faults: list[Fault] = []
    for text in arguments.set:
        try:
            overrides |= set_overrides([text])
        except InputError as error:
            faults.extend(error.faults)
    return overrides, faults
