"""Times all-reduce, all-gather, reduce-scatter and sends between real ranks, of one node or more, by message size. Needs the extra lab."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from fullstep.cli import EXIT_OK
from fullstep.cli.node_arguments import add_node_arguments, nodes_from, told_elsewhere
from fullstep.cli.places import fault_of_place
from fullstep.errors import Fault, InputError
from fullstep.quantities import SizeError, parse_size_bytes

if TYPE_CHECKING:
    from fullstep.api.linked import Linked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.usage = "fullstep link [options]"
    parser.add_argument("--cpu", metavar="N", type=int, help="N ranks on processors (gloo); without it a rank on every GPU (NCCL)")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--sizes", metavar="SIZE,SIZE", help="of messages, like 4KiB,1MiB; without it 4 KiB and each four times the last")
    sizes.add_argument("--max-bytes", metavar="SIZE", help="the largest of these (16MiB on processors, 1GiB on GPUs)")
    parser.add_argument("--iterations", metavar="N", type=int, default=20, help="timed calls of each size (20)")
    parser.add_argument("--silent-seconds", metavar="N", type=float, default=600.0, help="a rank that says nothing for so long hangs (600)")
    parser.add_argument("--network-gbit-s", metavar="X", type=float, help="line rate between nodes, for what the model assumes of them")
    parser.add_argument("--evidence", metavar="DIR_OR_URL", default="", help="keep the record there, for estimate and plan")
    parser.add_argument("--json", action="store_true", help="one JSON object with every call's seconds instead of text")
    add_node_arguments(parser, number=True)


def run(arguments: argparse.Namespace) -> int:
    """Measures and returns the exit code."""
    faults: list[Fault] = []
    sizes = None if arguments.sizes is None else [_size("--sizes", text, faults) for text in arguments.sizes.split(",")]
    largest = None if arguments.max_bytes is None else _size("--max-bytes", arguments.max_bytes, faults)
    if not arguments.silent_seconds > 0:
        faults.append(Fault("--silent-seconds", f"found {arguments.silent_seconds:g}", "more than 0"))
    if faults:
        raise InputError(*faults)
    from fullstep.api.linked import link  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.cli.progress import progress  # noqa: PLC0415

    nodes = nodes_from(arguments)
    if not nodes.begins:
        return EXIT_OK
    if nodes.rank == 0 and (fault := fault_of_place("--evidence", arguments.evidence)) is not None:
        raise InputError(fault)  # before minutes are measured
    with progress("measuring links") as say:
        linked = link(
            cpu=arguments.cpu, sizes_bytes=sizes, max_bytes=largest, iterations=arguments.iterations,
            silent_seconds=arguments.silent_seconds, progress=say, nodes=nodes, network_gbit_s=arguments.network_gbit_s,
        )  # fmt: skip
    if linked is None:
        sys.stderr.write(told_elsewhere(nodes))
    else:
        _say(linked, arguments.json, arguments.evidence)
    return EXIT_OK


def _size(flag: str, text: str, faults: list[Fault]) -> int:
    """In bytes; what is wrong with it is added to the faults."""
    try:
        size = parse_size_bytes(text)
    except SizeError as error:
        faults.append(Fault(flag, str(error), ""))
        return 0
    if size < 1:
        faults.append(Fault(flag, f"found {text.strip()[:40]}", "more than 0"))
    return size


def _say(linked: Linked, as_json: bool, where: str) -> None:
    """The report; then where the record is, or why it is not kept."""
    from fullstep.formats.probe_record import save_link, sealed  # noqa: PLC0415
    from fullstep.report.link_json import link_as_dict  # noqa: PLC0415

    record = sealed(link_as_dict(linked.measured, linked.assumed, linked.assumed_of, ["fullstep", *sys.argv[1:]]))
    if as_json:
        from fullstep.report.json import dump_rows  # noqa: PLC0415

        sys.stdout.write(dump_rows(record, "samples") + "\n")
    else:
        from fullstep.report.link_text import link_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        sys.stdout.write(link_text(linked.measured, linked.assumed, linked.assumed_of, Paper.of(sys.stdout)))
    if not where:
        return
    try:
        sys.stderr.write(f"fullstep: the record is {where.rstrip('/')}/{save_link(record, where)}\n")
    except InputError as error:  # what was measured is told nonetheless
        from fullstep.report.faults import faults_text  # noqa: PLC0415

        sys.stderr.write(faults_text(error))
