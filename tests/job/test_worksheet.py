"""A worksheet does not change; edits make copies."""

from __future__ import annotations

import json

import pytest

from fullstep.errors import InputError
from fullstep.job import Worksheet, edit, worksheet_from_mapping


@pytest.fixture
def worksheet() -> Worksheet:
    return worksheet_from_mapping(
        {"model": {"name": "gpt2"}, "layout": {"strategy": "fsdp"}, "method": {"kind": "lora", "targets": ["c_attn"]}}, "job.toml"
    )


def test_it_cannot_be_changed_in_place(worksheet: Worksheet) -> None:
    with pytest.raises(TypeError):
        worksheet["layout"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        worksheet["layout"]["strategy"] = "ddp"


def test_an_edit_leaves_the_original_alone(worksheet: Worksheet) -> None:
    changed = edit(worksheet, {"layout.strategy": "ddp", "batch.micro_batch": 4, "precision.compute": "bf16"})
    assert changed.stated("layout.strategy") == "ddp"
    assert changed.stated("batch.micro_batch") == 4
    assert changed.stated("precision.compute") == "bfloat16"
    assert worksheet.stated("layout.strategy") == "fsdp"
    assert worksheet.stated("batch.micro_batch") is None
    assert changed.origin == "job.toml"


def test_none_takes_a_key_out(worksheet: Worksheet) -> None:
    assert edit(worksheet, {"layout.strategy": None}).stated("layout.strategy") is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layout.strategy": "dpp"}, 'Did you mean "ddp"?'),
        ({"layout.strategyy": "ddp"}, "layout.strategy"),
        ({"strategy": "ddp"}, "layout.strategy"),
        ({"nonsense": 1}, "no key of the worksheet"),
    ],
)
def test_an_edit_is_checked(worksheet: Worksheet, change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=r"job\.toml") as caught:
        edit(worksheet, change)
    assert says in str(caught.value)


def test_an_edit_may_name_card_and_count_in_one(worksheet: Worksheet) -> None:
    changed = edit(worksheet, {"machine.gpu": "8xH100-SXM"})
    assert dict(changed["machine"]) == {"gpu": "H100-SXM", "gpus": 8}


def test_as_dict_is_plain_json_and_reads_back(worksheet: Worksheet) -> None:
    plain = worksheet.as_dict()
    assert json.loads(json.dumps(plain)) == plain == {
        "model": {"name": "gpt2"}, "layout": {"strategy": "fsdp"}, "method": {"kind": "lora", "targets": ["c_attn"]},
    }  # fmt: skip
    plain["layout"]["strategy"] = "ddp"
    assert worksheet.stated("layout.strategy") == "fsdp"
    assert worksheet_from_mapping(worksheet) == worksheet
