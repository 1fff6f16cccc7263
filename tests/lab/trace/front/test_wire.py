"""A trace comes out of JSON as it went in; whatever else comes is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fullstep.errors import Fault
from fullstep.lab.trace.front.wire import (
    Request,
    WireError,
    decode_faults,
    decode_request,
    decode_trace,
    encode_fault,
    encode_request,
    encode_trace,
)
from fullstep.ledger import Caution, Holdings, Instant, LiveTensor, ModuleShare, Moment, Trace

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
HOLDINGS = st.builds(Holdings, *[NUMBERS] * len(Holdings._fields))
INSTANTS = st.builds(Instant, holdings=HOLDINGS)
TRACES = st.builds(Trace, instants=st.lists(INSTANTS, max_size=3).map(tuple), seconds=NUMBERS)
TRACE = Trace(
    parameters=3, trainable_parameters=2, instants=(Instant("loss", Holdings(weights=0.5, buffers=2), "head"),), peak_at="loss",
    allocated_peak_bytes=1, reserved_peak_bytes=2, host_bytes=0,
    timeline=(Moment(2, 1, "forward", 0, 10, 5, 99), Moment(2, 0, "optimizer_step", None, 1, 1, 0)),
    largest=(LiveTensor(8, 1, "weights", (2, 2), "bfloat16", "layers.*.mlp", "aten.mm", "model.py:3 x @ w"),),
    modules=(ModuleShare("layers.0", "weights", 8),), flops_per_step=5, blocks=4, blocks_traced=3, operations=100, segments=2,
    out_of_memory="", notes=(Caution("F120", "no room"),), versions=(("torch", "2.13.0"),), seconds=0.25,
)  # fmt: skip

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
"""also on a machine that is busy"""


@UNHURRIED
@given(TRACES)
def test_there_and_back(trace: Trace) -> None:
    again = decode_trace(json.loads(json.dumps(encode_trace(trace))))
    assert again == trace
    assert [type(instant) for instant in again.instants] == [Instant] * len(trace.instants)


def test_named_tuples_are_tables_and_come_back_as_they_were() -> None:
    tree = encode_trace(TRACE)
    assert tree["timeline"][1]["block"] is None
    assert tree["versions"] == [["torch", "2.13.0"]]
    assert tree["largest"][0]["shape"] == [2, 2]
    again = decode_trace(json.loads(json.dumps(tree)))
    assert again == TRACE
    assert again.timeline[0].phase == "forward"
    assert again.instants[0].allocated_bytes == 2.5


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": "3"}, {"parameters": True}, {"parameters": 3.0}, {"parameters": None}, {"peak_at": "nowhere"}, {"peak_at": []},
        {"seconds": float("nan")}, {"seconds": float("inf")}, {"seconds": "1"}, {"seconds": False}, {"instants": {}}, {"instants": [7]},
        {"versions": [["torch"]]}, {"versions": [["torch", 2]]}, {"notes": [{"code": "F120"}]}, {"more": 1}, {"timeline": None},
        {"largest": [{**encode_trace(TRACE)["largest"][0], "shape": [2, "2"]}]},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_a_trace_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=r"^trace"):
        decode_trace({**encode_trace(TRACE), **change})


@pytest.mark.parametrize("name", Trace._fields)
def test_no_field_may_be_missing(name: str) -> None:
    tree = encode_trace(TRACE)
    del tree[name]
    with pytest.raises(WireError):
        decode_trace(tree)


@UNHURRIED
@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_anything_else_is_refused(tree: Any) -> None:
    with pytest.raises(WireError):
        decode_trace(tree)
    with pytest.raises(WireError):
        decode_request(json.dumps(tree))


def test_a_request_there_and_back() -> None:
    request = Request({"model": {"name": "gpt2"}}, {"model_type": "gpt2"}, "gpt2", snapshot="/a/b")
    text = encode_request(request)
    assert text.count("\n") == 1
    assert decode_request(text) == request
    with pytest.raises(WireError):
        decode_request("{")


def test_faults_there_and_back() -> None:
    fault = Fault("step.loss", '"fused"', "standard", "")
    assert decode_faults([encode_fault(fault)]) == (fault,)
    for wrong in ([], None, [1], [{"where": "x"}], [{**encode_fault(fault), "found": 3}]):
        with pytest.raises(WireError):
            decode_faults(wrong)
