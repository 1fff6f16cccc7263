"""Records of probes: what is written is read again; what somebody else wrote is read as data, and only where it is whole and sound."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from probes_by_hand import probe_by_hand, ran_out_by_hand, rank_by_hand

from fullstep.errors import InputError
from fullstep.formats.probe_record import probe_from_bytes, record_of, record_text, writing
from fullstep.formats.probe_record.writing import LARGEST_BYTES, digest_of
from fullstep.ledger.probe import Probe, ProbedRank, Stretch

PROBES = {"whole": probe_by_hand(), "out of memory": ran_out_by_hand(), "bare": probe_by_hand(worksheet=None, ranks=())}


@pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)
def test_what_is_written_is_read_again(probe: Probe) -> None:
    assert probe_from_bytes(record_text(probe).encode(), "a.json") == probe


def test_a_rank_on_two_devices_is_read_again() -> None:
    """As a model whose layers lie on several GPUs of one process."""
    parts = tuple(replace(rank_by_hand(0), device=f"cuda:{index} NVIDIA H200") for index in range(2))
    probe = probe_by_hand(ranks=parts)
    assert probe_from_bytes(record_text(probe).encode(), "a.json") == probe


def test_a_seed_and_tokens_that_are_not_known() -> None:
    """As of a command: null, and no rate of tokens."""
    rank = rank_by_hand()
    steps = tuple(sample._replace(tokens=None) for sample in rank.steps)
    probe = probe_by_hand(seed=None, ranks=(replace(rank, steps=steps),))
    record = record_of(probe)
    assert (record["seed"], record["summary"]["tokens_per_second"]) == (None, None)
    assert probe_from_bytes(record_text(probe).encode(), "a.json") == probe


def test_the_summary_is_what_the_samples_come_to() -> None:
    summary = record_of(probe_by_hand())["summary"]
    assert summary == {
        "allocated_peak_bytes": 7100, "reserved_peak_bytes": 9000, "device_peak_bytes": 12000, "peak_rank": 1, "peak_at": "backward",
        "step_seconds": {"low": 2.0, "median": 3.0, "high": 4.0},
        "tokens_per_second": 100.0,  # 2 ranks x (100 + 200) in 2 + 4 s
        "data_wait_fraction": pytest.approx(1 / 6), "exposed_communication_fraction": 0.125,
    }  # fmt: skip


def test_a_sample_has_a_line_and_named_columns() -> None:
    text = record_text(probe_by_hand())
    assert '[2, 1, "backward", 7100, 4000, 9000, 12000]' in [line.strip().rstrip(",") for line in text.splitlines()]
    assert record_of(probe_by_hand())["ranks"][0]["steps"]["columns"] == ["step", "seconds", "data_seconds", "tokens"]


def test_white_space_and_order_of_keys_do_not_matter() -> None:
    record = json.loads(record_text(probe_by_hand()))
    other = json.dumps(dict(reversed(record.items())), indent=7).encode("utf-8-sig")
    assert probe_from_bytes(other, "a.json") == probe_by_hand()


def test_numbers_that_json_does_not_have_are_written_as_null() -> None:
    probe = probe_by_hand(environment={"ratio": math.nan, "path": pytest, 3: (1, 2)})
    environment = json.loads(record_text(probe))["environment"]
    assert environment["ratio"] is None and environment["3"] == [1, 2] and isinstance(environment["path"], str)


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "another kind": (lambda r: r.update(kind="a receipt"), 'kind: "a receipt"'),
    "a newer schema": (lambda r: r.update(schema=2), "A newer fullstep made it"),
    "no schema": (lambda r: r.pop("schema"), "schema: nothing"),
    "an unknown key": (lambda r: r.update(extra=1), 'an unknown key: "extra"'),
    "a missing key": (lambda r: r.pop("seed"), "seed: not there"),
    "text for a number": (lambda r: r["ranks"][1]["steps"]["rows"][0].__setitem__(1, "2.0"), 'ranks[1].steps.rows[0].seconds: "2.0"'),
    "a step of no time": (lambda r: r["ranks"][0]["steps"]["rows"][0].__setitem__(1, 0.0), "ranks[0].steps.rows[0].seconds: 0.0"),
    "bytes below nothing": (lambda r: r["ranks"][0]["memory"]["rows"][0].__setitem__(3, -1), "allocated_peak_bytes: -1"),
    "true for a number": (lambda r: r.update(world_size=True), "world_size: true"),
    "a short row": (lambda r: r["ranks"][0]["memory"]["rows"][2].pop(), "ranks[0].memory.rows[2]: a list of 6"),
    "other columns": (lambda r: r["ranks"][0]["steps"]["columns"].reverse(), "ranks[0].steps.columns: other columns"),
    "an outcome that there is not": (lambda r: r["outcome"].update(what="fine"), 'outcome.what: "fine"'),
    "a time that is none": (lambda r: r.update(made="../../etc"), "made:"),
    "a day that there is not": (lambda r: r.update(made="9999-99-99T99:99:99Z"), 'made: "9999-99-99T99:99:99Z"'),
    "out of memory, and no word of it": (lambda r: r["outcome"].update(what="out_of_memory"), '"out_of_memory" without out_of_memory'),
    "a worksheet too deep": (lambda r: r["worksheet"].update(model=nested(30)), "worksheet.model"),
    "an enormous number": (lambda r: r["environment"].update(bits=2**70), "environment.bits"),
    "a rank twice": (lambda r: r["ranks"].append(copy.deepcopy(r["ranks"][0])), "a rank twice"),
    "a rank too many": (lambda r: r["ranks"][1].update(rank=2), "each of 0 to 1, at most once"),
    "a better summary": (lambda r: r["summary"].update(allocated_peak_bytes=1), "summary.allocated_peak_bytes: 1"),
    "a faster summary": (lambda r: r["summary"]["step_seconds"].update(median=2.5), "summary.step_seconds"),
}


def nested(deep: int) -> dict[str, Any]:
    return {"a": nested(deep - 1)} if deep else {}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_record_may_not_say(name: str) -> None:
    change, said = CHANGES[name]
    record = json.loads(record_text(probe_by_hand()))
    change(record)
    record["sha256"] = digest_of({key: value for key, value in record.items() if key != "sha256"})
    with pytest.raises(InputError) as caught:
        probe_from_bytes(json.dumps(record).encode(), "a.json")
    assert said in str(caught.value)
    assert str(caught.value).startswith("a.json")


def test_a_changed_figure_is_noticed() -> None:
    text = record_text(probe_by_hand()).replace('"torch": "2.13.0"', '"torch": "2.12.0"')
    with pytest.raises(InputError, match=r"sha256.*changed after it was made"):
        probe_from_bytes(text.encode(), "a.json")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "no JSON"),
        (b"\x80\x04\x95\x0c\x00\x00\x00", "not UTF-8"),  # the beginning of a pickle
        (b'{"kind": NaN}', "NaN is no number"),
        (b'{"kind": 1, "kind": 2}', "stands twice"),
        (b"[" * 200_000, "too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "no JSON"),
        (b'["fullstep probe"]', "a list of 1"),
        (b" " * (LARGEST_BYTES + 1), "more than"),
    ],
    ids=["empty", "pickle", "nan", "twice", "deep", "digits", "list", "large"],
)
def test_what_is_no_record(raw: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        probe_from_bytes(raw, "a.json")


def test_too_many_samples_leave_out_the_steps_before_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LARGEST_BYTES", 10_000)
    stretch = Stretch(1, 1, "forward", 5, 5, 5, 5)
    last = Stretch(2, 1, "forward", 6, 5, 5, 5)
    rank = ProbedRank(rank=0, device="cpu", memory=(*[stretch] * 1000, last), steps=(), host_peak_bytes=None)
    probe = probe_from_bytes(record_text(probe_by_hand(ranks=(rank,))).encode(), "a.json")
    assert probe.ranks[0].memory == (last,)
    assert "leaves out memory" in probe.notes[-1]
    monkeypatch.setattr(writing, "LARGEST_BYTES", 1000)
    with pytest.raises(InputError, match="Probe fewer steps"):
        record_text(probe)
