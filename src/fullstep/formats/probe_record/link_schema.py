"""The form of a record of links: every key, what it may hold and what it means. Reader and docs are made from this table."""

from __future__ import annotations

from fullstep.formats.probe_record.forms import AnyTable, Field, ListOf, Number, OrNull, Table, Text, Whole
from fullstep.formats.probe_record.schema import LEAST_SECONDS, TIME
from fullstep.ledger.link import LINK_COLLECTIVES

LINK_KIND = "fullstep link"
LINK_SCHEMA = 1
_NUMBER = Number(LEAST_SECONDS)

ENVIRONMENT = Table(
    Field("device", Text(), "cpu, or the GPU's name as its driver says it"),
    Field("backend", Text(("gloo", "nccl")), "of the collectives"),
    Field("ranks", Whole(2), "of all nodes together"),
    Field("nodes", Whole(1), "of equally many ranks each"),
    Field("network_gbit_s", OrNull(_NUMBER), "line rate of a node and direction, as stated; null: not stated, or one node"),
    Field("processors", Whole(1), "cores of the machine"),
    Field("versions", AnyTable(), "python, torch, with GPUs nccl and cuda"),
    Field("settings", AnyTable(), "environment variables that change what the backend does"),
)
SAMPLE = Table(
    Field("collective", Text(LINK_COLLECTIVES), "what was called"),
    Field("size_bytes", Whole(1), "of the message, as nccl-tests count it"),
    Field("seconds", ListOf(_NUMBER, 1_000_000, "a list of seconds"), "of each call, of the slowest rank"),
)
LINK_RECORD = Table(
    Field("kind", Text([LINK_KIND]), "what this file is"),
    Field("schema", Whole(1), "of this form: 1"),
    Field("fullstep", Text(), "version that made it"),
    Field("evidence", Text(["measured"]), "how the figures are known"),
    Field("made", TIME, "when it began, UTC"),
    Field("command", ListOf(Text(), 4096, "a list of texts"), "that made it, word by word"),
    Field("environment", ENVIRONMENT, "what was measured"),
    Field("iterations", Whole(1), "timed calls of each size"),
    Field("warm_up", Whole(), "calls before them"),
    Field("samples", ListOf(SAMPLE, 10_000, "a list of tables"), "every collective by every size, sizes ascending"),
    Field("summary", ListOf(AnyTable(), len(LINK_COLLECTIVES), "a list of tables"), "what the samples come to, see [link.md](link.md)"),
    Field("assumed_of", Text(), "what the network model took the machine for"),
    Field("notes", ListOf(Text(), 1000, "a list of texts"), "what has to be known to read the figures"),
    Field("seconds", Number(), "that the measurement took"),
    Field("sha256", Text(pattern=r"[0-9a-f]{64}", said="64 hexadecimal digits"), "of the rest"),
)
