"""The arguments of experiments that may run on several nodes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fullstep.cli.worksheet_arguments import flag_of
from fullstep.errors import Fault, InputError

if TYPE_CHECKING:
    from fullstep.lab.ranks.nodes import Nodes


def add_node_arguments(parser: argparse.ArgumentParser, *, number: bool) -> None:
    """Adds them; under torchrun, srun, SkyPilot and dstack none is needed.

    Args:
        parser: of the command
        number: also ``--nodes``, which commands with a worksheet have as a key of it
    """
    group = parser.add_argument_group(
        "several nodes",
        "the same command on each of them; under torchrun, srun, SkyPilot or dstack it finds the others by itself, else by --nodes N and:",
    )
    if number:
        group.add_argument("--nodes", metavar="N", help="nodes that take part (as the launcher says; without one 1)")
    group.add_argument("--node-rank", metavar="R", type=int, help="beside --nodes: of this one, from 0 on (as the launcher says)")
    group.add_argument("--rendezvous", metavar="HOST:PORT", help="beside --nodes: of the node of rank 0 (as the launcher says)")


def nodes_from(arguments: argparse.Namespace) -> Nodes:
    """What was stated, and what the launcher says.

    Raises:
        InputError: they contradict each other, or something is missing
    """
    from fullstep.lab.ranks.nodes import nodes_of  # noqa: PLC0415 - not needed for help

    stated: str | None = vars(arguments).get("nodes", flag_of(arguments, "machine.nodes"))
    if stated is not None and not (stated.isascii() and stated.isdigit()):
        raise InputError(Fault("--nodes", f'"{stated[:40]}"', "a whole number from 1 on"))
    return nodes_of(None if stated is None else int(stated[:9]), arguments.node_rank, arguments.rendezvous)


def told_elsewhere(nodes: Nodes) -> str:
    """A line for the output of a node that is not the first."""
    return f"fullstep: node {nodes.rank} of {nodes.total} has done its part; node 0 tells of all of them\n"
