"""One trace from its request to its result."""

from __future__ import annotations

import time
from collections.abc import Callable

from fullstep.errors import UnsupportedError
from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.lab.trace.front.limits import faults_of
from fullstep.lab.trace.front.wire import Request
from fullstep.lab.trace.worker import frameworks, layout
from fullstep.lab.trace.worker.compat import TESTED, UNITS, install_all, untested_versions
from fullstep.lab.trace.worker.compat.capabilities import say_capability
from fullstep.lab.trace.worker.compat.masks import say_packed
from fullstep.lab.trace.worker.replicate import NotAlikeError
from fullstep.lab.trace.worker.result import result_of
from fullstep.lab.trace.worker.run import Run
from fullstep.ledger import Caution, Trace

Report = Callable[[str], None]


def trace(request: Request, report: Report) -> Trace:
    """Traces one step.

    Args:
        request: of the front
        report: is told the stage that begins

    Raises:
        InputError: the worksheet or its config is at fault, or (UnsupportedError) cannot be traced
    """
    began = time.monotonic()
    settings = settings_of(worksheet_from_mapping(request.worksheet))
    if faults := faults_of(settings):  # the front says the same before it starts a worker; a request may come from elsewhere
        raise UnsupportedError(*faults)
    report("preparing the libraries")
    install_all(unit for unit in UNITS if settings.method.kind != "full" or "peft" not in unit.libraries)
    _say_what_cannot_be_asked(settings)
    notes = [
        Caution("F121", f"{name} {has} is not among the versions that the tracer was tested with: {', '.join(TESTED[name])}")
        for name, has in untested_versions().items()
    ]
    notes += frameworks.notes(settings)
    run = Run(request.config, settings, layout.make_mesh(settings), report)
    if request.full_depth:
        stream, blocks = run.whole()
    else:
        try:
            stream, blocks = run.shortened()
        except NotAlikeError:
            stream, blocks = run.whole()
        if run.unlike and not blocks.repeated:
            notes.append(Caution("F122", f"every block was traced, because equal ones did not behave alike: {run.unlike}"))
    report("adding up")
    found = result_of(stream, blocks, run.sizes, settings, request.snapshot)
    return found._replace(notes=(*notes, *found.notes), seconds=round(time.monotonic() - began, 2))


def _say_what_cannot_be_asked(settings: Settings) -> None:
    """Libraries ask values of masks, and the card: the worksheet answers."""
    say_packed(settings.batch.packed)
    card = settings.machine.card
    if card is not None and card.compute_capability:
        major, _, minor = card.compute_capability.partition(".")
        say_capability((int(major), int(minor or 0)))
