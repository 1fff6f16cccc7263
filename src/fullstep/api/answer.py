"""One worksheet exactly as written: no search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullstep.api.timing import with_timing
from fullstep.calibration import compare_with_pilot, outrank
from fullstep.calibration.narrowing import narrow_memory, without_memory
from fullstep.errors import Fault, InputError
from fullstep.evidence import Evidence
from fullstep.job import Job, Settings, Worksheet, complete
from fullstep.ledger import Answer, Caution, HostMemory, Memory, MemoryEstimate, Trace
from fullstep.physics import estimate_memory
from fullstep.physics.network.required import EXPOSED_SHARE
from fullstep.plan.verdict import judge, judge_host, judge_pilot, judge_replay

if TYPE_CHECKING:
    from fullstep.plan.renting import Renter


def estimate(worksheet: Worksheet, exposed_share: float = EXPOSED_SHARE) -> Answer:
    """The answer to one worksheet.

    Args:
        worksheet: as written
        exposed_share: of the step, that communication may take on the network that is asked for

    Raises:
        InputError: the worksheet is at fault, or (UnsupportedError) asks for what the formulas do not cover
    """
    return answer_of(complete(worksheet), exposed_share)


def answer_of(job: Job, exposed_share: float = EXPOSED_SHARE, renter: Renter | None = None) -> Answer:
    """The whole answer to a completed job: memory, what a step takes and sends, and what the run costs where its machines are for rent."""
    answer = with_timing(job, size(job), exposed_share)
    if answer.timing is None or answer.timing.run is None:
        return answer
    from fullstep.api.prices import with_price  # noqa: PLC0415 (only a run of known length asks for offers)

    return with_price(job, answer, renter)


def compare(*worksheets: Worksheet) -> tuple[Answer, ...]:
    """The answers to several worksheets, in their order, to be put side by side.

    Raises:
        InputError: a worksheet is at fault; the faults of all of them together
    """
    jobs: list[Job] = []
    faults: list[Fault] = []
    for worksheet in worksheets:
        try:
            jobs.append(complete(worksheet))
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError(*faults)
    return tuple(map(answer_of, jobs))


def size(job: Job) -> Answer:
    """Memory of a completed job, by the formulas and by what records say of it; a search asks for no more."""
    estimated, places = estimate_memory(job), job.from_records.places
    return assemble(job, narrow_memory(estimated, places) if places else estimated, estimated)


def assemble(job: Settings, account: MemoryEstimate, estimated: MemoryEstimate | None, trace: Trace | None = None) -> Answer:
    """An account of a step becomes an answer: what the very program allocated elsewhere outranks it, a pilot's figures both; then it is
    judged.

    Args:
        job: the completed worksheet
        account: [bytes] what the best witness that measured nothing says of its memory: the formulas, near records around them, or a trace
        estimated: [bytes] what the formulas say; None: they do not know the model
        trace: where that witness is a trace
    """
    elsewhere = job.from_records.allocated
    recorded = outrank(account, elsewhere)  # on processors, which prove no room on a card
    memory = outrank(recorded, job.measured)
    figures = {**job.measured, **elsewhere}
    machine, goal = job.machine, job.goal
    judgement = judge(memory.needed, memory.other_peaks, machine.usable_bytes, goal.reserve_fraction)
    host_verdict = judge_host(memory.host_bytes, machine.host_memory_bytes, goal.reserve_fraction)
    if estimated is None and host_verdict != "does_not_fit":  # only a part of it is known
        host_verdict = "unknown"
    if trace is not None:
        judgement = judge_replay(judgement, trace.out_of_memory)
    if memory is not recorded:  # a pilot ran on this machine
        judgement = judge_pilot(judgement)
        host_verdict = "tight" if host_verdict == "does_not_fit" else host_verdict
    witness: Evidence = "estimated" if trace is None else "traced"
    return Answer(
        parameters=memory.parameters,
        trainable_parameters=memory.trainable_parameters,
        memory=Memory(
            evidence=witness if memory is account else "measured",
            allocated_peak_bytes=memory.allocated,
            reserved_peak_bytes=memory.reserved,
            device_peak_bytes=memory.device,
            needed_bytes=memory.needed,
            peak_at=memory.peak_at,
            instants=memory.instants,
            other_peaks=memory.other_peaks,
            usable_bytes=machine.usable_bytes,
            verdict=judgement.verdict,
            reason=judgement.reason,
        ),
        host=HostMemory(
            evidence="traced" if estimated is None else "estimated",
            memory_peak_bytes=memory.host_bytes,
            at=memory.host_at,
            verdict=host_verdict,
        ),
        assumptions=job.assumptions if trace is None else without_memory(job.assumptions),
        warnings=(*(Caution(code, text) for code, text in job.cautions), *memory.cautions),
        measured=compare_with_pilot(estimated, figures, None if trace is None else account) if figures else {},
        trace=trace,
        estimated=None if trace is None else estimated,
    )
