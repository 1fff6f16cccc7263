"""The form of a probe's record: every key, what it may hold and what it means. Reader and docs are made from this table."""

from __future__ import annotations

from typing import get_args

from fullstep.formats.probe_record.forms import LARGEST, AnyTable, Columns, Field, ListOf, Number, OrNull, Table, Text, Whole
from fullstep.ledger.probe import Outcome

KIND = "fullstep probe"
SCHEMA = 1
MOST_RANKS = 16_384
LEAST_SECONDS = 1e-9
"""that a step takes: a rate over it stays finite"""
_WORD = Text(pattern=r"[a-z0-9_ ]{1,60}", said="a word in small letters")
_BYTES, _BYTES_OR_NULL = Whole(), OrNull(Whole())
_SECONDS, _SECONDS_OR_NULL = Number(), OrNull(Number())
_STEP_SECONDS = Number(LEAST_SECONDS)
TIME = Text(pattern=r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z| UTC|\+00:00)?", said="a time such as 2026-01-31T12:00:00Z")
_PHASES = (
    "load, inputs, forward, loss, backward, optimizer_step, gradients_cleared, compile, evaluation, save; of a command also "
    "load_and_forward, and forward_and_backward where it is not seen which"
)

MEMORY = Columns(
    Field("step", Whole(), "of the optimizer, from 1 on; 0: before the first"),
    Field("micro_batch", Whole(), "from 1 on; 0: outside of them"),
    Field("phase", _WORD, _PHASES),
    Field("allocated_peak_bytes", _BYTES, "highest in live tensors from this landmark to the next"),
    Field("allocated_end_bytes", Whole(-LARGEST), "at its end"),
    Field("reserved_peak_bytes", _BYTES_OR_NULL, "highest that torch's allocator held; null: the device has no such counter"),
    Field("device_used_bytes", _BYTES_OR_NULL, "by everybody on the device, as its driver says"),
)
STEPS = Columns(
    Field("step", Whole(), "of the optimizer"),
    Field("seconds", _STEP_SECONDS, "until the device had done all of it"),
    Field("data_seconds", _SECONDS, "making rows and bringing them to the device"),
    Field("tokens", OrNull(Whole()), "of this rank, padding not among them; null: not known, as of a command"),
)
OVERLAP = Columns(
    Field("compute_seconds", _SECONDS, "of a profiled step: kernels that compute"),
    Field("communication_seconds", _SECONDS, "kernels that talk"),
    Field("exposed_seconds", _SECONDS, "communication while nothing is computed"),
    Field("step_seconds", _SECONDS, "the whole step"),
)
RANK = Table(
    Field("rank", Whole(), "from 0 on"),
    Field("device", Text(), "on which it ran"),
    Field("host_peak_bytes", _BYTES_OR_NULL, "of its process"),
    Field("evaluation_seconds", _SECONDS_OR_NULL, "of one micro-batch without gradients"),
    Field("save_seconds", _SECONDS_OR_NULL, "of one checkpoint"),
    Field("save_bytes", _BYTES_OR_NULL, "that this rank wrote"),
    Field("memory", MEMORY, "stretches from landmark to landmark"),
    Field("steps", STEPS, "those that were timed"),
    Field("overlap", OVERLAP, "those that were profiled"),
)
OUT_OF_MEMORY = Table(
    Field("rank", Whole(), "on which memory ran out"),
    Field("step", Whole(), "of the optimizer"),
    Field("phase", _WORD, "as in memory"),
    Field("asked_bytes", _BYTES_OR_NULL, "by the request that was refused"),
    Field("allocated_bytes", _BYTES_OR_NULL, "at that instant"),
    Field("reserved_bytes", _BYTES_OR_NULL, "at that instant"),
    Field("limit_bytes", _BYTES_OR_NULL, "of the device, or that was set"),
)
SUMMARY = Table(
    Field("allocated_peak_bytes", _BYTES_OR_NULL, "highest on any rank"),
    Field("reserved_peak_bytes", _BYTES_OR_NULL, "highest on any rank"),
    Field("device_peak_bytes", _BYTES_OR_NULL, "highest device_used_bytes on any rank"),
    Field("peak_rank", OrNull(Whole()), "the rank with the highest allocated peak"),
    Field("peak_at", OrNull(_WORD), "its phase then"),
    Field("step_seconds", OrNull(Table(
        Field("low", _STEP_SECONDS, "shortest"), Field("median", _STEP_SECONDS, "median"), Field("high", _STEP_SECONDS, "longest"),
    )), "of timed steps, each that of its slowest rank"),
    Field("tokens_per_second", OrNull(Number()), "of all ranks together, padding not among them"),
    Field("data_wait_fraction", OrNull(Number()), "of the timed steps, the slowest rank's share for data"),
    Field("exposed_communication_fraction", OrNull(Number()), "of the profiled steps"),
)  # fmt: skip
MODEL = Table(
    Field("name", Text(), "as the worksheet names it; of a command what is known of it"),
    Field("parameters", OrNull(Whole()), "of the model"),
    Field("trainable_parameters", OrNull(Whole()), "of them, that are trained"),
)
OUTCOME = Table(
    Field("what", Text(get_args(Outcome)), "how it ended"),
    Field("reason", Text(), "why it did not complete; empty where it did"),
)
RECORD = Table(
    Field("kind", Text([KIND]), "what this file is"),
    Field("schema", Whole(1), "of this form: 1"),
    Field("made", TIME, "when, UTC"),
    Field("command", ListOf(Text(), 4096, "a list of texts"), "that made it, word by word"),
    Field("seed", OrNull(Whole(-LARGEST)), "of weights and rows; null: not known, as of a command"),
    Field("outcome", OUTCOME, "how it ended"),
    Field("model", MODEL, "what was trained"),
    Field("worksheet", OrNull(AnyTable()), "as it was probed; null: a command of somebody's own"),
    Field("environment", AnyTable(), "GPU, driver, versions of CUDA, torch, transformers, commit"),
    Field("world_size", Whole(1), "ranks that were started"),
    Field("ranks", ListOf(RANK, MOST_RANKS, "a list of ranks"), "those that left a record; of a command once for each device"),
    Field("out_of_memory", OrNull(OUT_OF_MEMORY), "where memory ran out; null: it did not"),
    Field("summary", SUMMARY, "what the samples come to"),
    Field("profile", AnyTable(), "further figures of the profiler"),
    Field("notes", ListOf(Text(), 1000, "a list of texts"), "where the program is not the worksheet's"),
    Field("sha256", Text(pattern=r"[0-9a-f]{64}", said="64 hexadecimal digits"), "of the rest"),
)
