"""Digests tell states apart by every bit, and by nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fullstep.resume import state_digests
from fullstep.resume.digests import digest_of, digests_of

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bit_of_a_tensor(dtype: torch.dtype) -> None:
    value = torch.ones(4, 3).to(dtype)
    seen = {digest_of(value), digest_of(value.reshape(3, 4)), digest_of(value.flatten())}
    for at in range(value.numel() * value.element_size()):
        other = value.clone()
        other.flatten().view(torch.uint8)[at] ^= 2 if dtype != torch.bool else 1
        seen.add(digest_of(other))
    assert len(seen) == 3 + value.numel() * value.element_size()


def test_how_a_tensor_lies_in_memory_is_nothing() -> None:
    value = torch.arange(12.0).reshape(3, 4)
    wide = torch.zeros(3, 9)
    wide[:, 2:6] = value
    assert digest_of(value) == digest_of(value.t().contiguous().t()) == digest_of(wide[:, 2:6]) == digest_of(nn.Parameter(value))
    assert digest_of(torch.tensor(3.0)) != digest_of(torch.tensor([3.0]))
    assert digest_of(torch.zeros(0, 3)) != digest_of(torch.zeros(3, 0))
    assert digest_of(torch.zeros(2)) != digest_of(torch.zeros(2, dtype=torch.int32))


PLAIN = st.integers() | st.text() | st.none()


@settings(max_examples=40, deadline=None)
@given(value=st.recursive(PLAIN, lambda each: st.dictionaries(st.text(), each) | st.lists(each), max_leaves=8))
def test_names_do_not_depend_on_the_order_in_a_mapping(value: Any) -> None:
    def turned(each: Any) -> Any:
        if isinstance(each, dict):
            return {key: turned(each[key]) for key in reversed([*each])}
        return [turned(one) for one in each] if isinstance(each, list) else each

    assert digests_of({"a": value, "b": 1}) == digests_of(turned({"a": value, "b": 1}))
    assert digests_of({"a": value}) != digests_of({"a": [value, 1]})


def test_of_a_training() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    before = state_digests(model, optimizer)
    assert state_digests(model, optimizer) == before and not optimizer.state
    assert {"model.weight", "model.bias", "optimizer.state.weight.exp_avg", "rng.rank0"} <= set(before)
    with torch.no_grad():
        model.weight[0, 0] += 1e-6
    after = state_digests(model, optimizer)
    assert {name for name in before if before[name] != after[name]} == {"model.weight"}


@pytest.mark.parametrize("name", ["a tensor", "a value"])
def test_ranks_that_came_apart_show(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Two ranks hold a state alike but for one thing: replicas that drifted, or a scheduler that is another step."""

    def of_both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, str]:
        group: Any = object()
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda _: 2)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda _: 0)

        def gather(everywhere: list[Any], mine: dict[str, str], group: Any) -> None:
            everywhere[:] = [mine, digests_of(other)]

        monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
        return digests_of(one, group)

    state = {"a tensor": torch.zeros(3), "another": torch.ones(2), "a value": {"step": 3}}
    changed = {**state, name: torch.tensor([0.0, 0.0, 1.0]) if name == "a tensor" else {"step": 4}}
    assert of_both(state, dict(state)) == digests_of(state)
    found = of_both(state, changed)
    whole = name if name == "a tensor" else f"{name}.step"
    assert {key for key in found if key not in digests_of(state)} == {f"{whole}@rank0", f"{whole}@rank1"}
