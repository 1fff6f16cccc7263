"""Runs real full steps on real hardware, and puts what was measured beside estimate and trace; -- CMD measures a training of your own.
Needs the extra lab."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fullstep.cli import EXIT_OK
from fullstep.cli.node_arguments import add_node_arguments, nodes_from, told_elsewhere
from fullstep.cli.places import fault_of_place
from fullstep.cli.probe_command import add_command_arguments, exit_code, keep_record, run_command_probe_cli
from fullstep.cli.worksheet_arguments import add_worksheet_arguments, states_anything, worksheet_from
from fullstep.errors import Fault, InputError

if TYPE_CHECKING:
    from fullstep.api.probed import Probed
    from fullstep.ledger.probe import Probe

TAKES_COMMAND = True
"""what follows -- is somebody's own training"""
_STEPS = 5
_HUB_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--cpu", metavar="N", type=int, help="N ranks on processors; without it a rank on every GPU")
    parser.add_argument("--steps", metavar="N", type=int, help="optimizer steps: two counted, others timed (5; of a command all)")
    parser.add_argument("--real-weights", metavar="DIR_OR_ID", default="", help="real weights, a folder or hub id; without it random ones")
    parser.add_argument("--evaluate", action="store_true", help="also one micro-batch of an evaluation")
    parser.add_argument("--save-to", metavar="DIR_OR_URL", default="", help="also save a checkpoint there, once")
    parser.add_argument("--evidence", metavar="DIR_OR_URL", default="", help="keep the record there, also of a probe that failed")
    limit = "as if a device had no more memory than X GiB; on processors all that a rank takes beyond its start"
    parser.add_argument("--limit-gib", metavar="X", type=float, help=limit)
    parser.add_argument("--snapshot", metavar="FILE", default="", help="the allocator's history, for PyTorch's memory viewer (GPUs)")
    parser.add_argument("--seed", metavar="N", type=int, default=20_260_101, help="of weights and rows (20260101)")
    parser.add_argument("--no-trace", action="store_true", help="no trace beside it")
    parser.add_argument("--silent-seconds", metavar="N", type=float, default=600.0, help="a rank that says nothing for so long hangs (600)")
    parser.add_argument("--json", action="store_true", help="the record as one JSON object instead of text")
    add_node_arguments(parser, number=False)
    add_command_arguments(parser)
    add_worksheet_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Probes and returns the exit code: 3 where memory ran out, 4 where a rank died or hung, or something was not saved or kept."""
    if arguments.command is not None or arguments.seen is not None:
        return run_command_probe_cli(arguments)
    if not arguments.silent_seconds > 0:
        raise InputError(Fault("--silent-seconds", f"found {arguments.silent_seconds:g}", "more than 0"))
    nodes = nodes_from(arguments)
    if not nodes.begins:
        return EXIT_OK
    _require_places(arguments)
    if not states_anything(arguments):
        remedy = "For example: fullstep probe job.toml --cpu 1, or: fullstep probe -- python train.py"
        raise InputError(Fault("worksheet", "none is given", "a file, - for standard input, flags, or a command after --", remedy))
    worksheet = worksheet_from(arguments)
    from fullstep.api.probed import probe  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.cli.progress import progress  # noqa: PLC0415

    kept: list[bool] = []
    with progress("probing") as say:
        probed = probe(
            worksheet, cpu=arguments.cpu, steps=_STEPS if arguments.steps is None else arguments.steps,
            weights=arguments.real_weights, evaluate=arguments.evaluate, save_to=arguments.save_to,
            snapshot=arguments.snapshot, limit_gib=arguments.limit_gib, seed=arguments.seed,
            traces=not arguments.no_trace, silent_seconds=arguments.silent_seconds, command=("fullstep", *sys.argv[1:]),
            progress=say, keep=lambda seen: kept.append(_keep(seen, arguments)), nodes=nodes,
        )  # fmt: skip
    if probed is None:
        sys.stderr.write(told_elsewhere(nodes))
        return EXIT_OK
    _say(probed, arguments.json)
    return exit_code(probed.probe, all(kept))


def _require_places(arguments: argparse.Namespace) -> None:
    """That folders can be made and URLs be reached, as far as that is known before anything runs."""
    found = (
        fault_of_place("--evidence", arguments.evidence), fault_of_place("--save-to", arguments.save_to),
        _fault_of_weights(arguments.real_weights),
    )  # fmt: skip
    if faults := [fault for fault in found if fault is not None]:
        raise InputError(*faults)


def _fault_of_weights(where: str) -> Fault | None:
    """Of a folder that is not there or holds none; whether a hub has an id is known when it is asked."""
    path = Path(where)
    if where and path.is_dir():
        if any(path.glob("*.safetensors")) or any(path.glob("*.bin")):
            return None
        return Fault("--real-weights", f'"{where[:80]}": a folder without *.safetensors and *.bin', "a model's folder, or a hub id")
    if where and not _HUB_ID.fullmatch(where):
        return Fault("--real-weights", f'"{where[:80]}": no such folder', "a model's folder, or a hub id")
    return None


def _keep(seen: Probe, arguments: argparse.Namespace) -> bool:
    """Whether it is kept. Also of a probe that a signal ends, of which nothing else is told: what is known of it stands in a line then."""
    is_kept = keep_record(seen, arguments.evidence)
    if seen.outcome == "stopped":
        from fullstep.report.probe_text import known_words  # noqa: PLC0415

        kept = "" if arguments.evidence or arguments.json else "; no record was kept, as --evidence DIR or --json would have"
        sys.stderr.write(f"fullstep: the probe was stopped {seen.reason}: {known_words(seen)}{kept}\n")
        if arguments.json:
            _dump(seen)
    return is_kept


def _dump(seen: Probe) -> None:
    from fullstep.formats.probe_record import record_of  # noqa: PLC0415
    from fullstep.report.json import dump  # noqa: PLC0415

    sys.stdout.write(dump(record_of(seen)) + "\n")
    sys.stdout.flush()


def _say(probed: Probed, as_json: bool) -> None:
    if as_json:
        _dump(probed.probe)
        return
    from fullstep.report.paper import Paper  # noqa: PLC0415
    from fullstep.report.probe_text import Beside, probe_text  # noqa: PLC0415

    on_gpus = bool(probed.probe.ranks) and probed.probe.ranks[0].device != "cpu"
    timing = probed.answer.timing if probed.answer is not None and on_gpus else None
    step = timing.step.seconds if timing is not None and timing.step is not None else None
    beside = Beside(probed.lines, step, probed.model_flops_utilization)
    sys.stdout.write(probe_text(probed.settings, probed.probe, beside, Paper.of(sys.stdout)))
