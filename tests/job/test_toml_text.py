"""What is written as TOML reads back as the same worksheet."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.job import blank_worksheet, complete, worksheet_from_mapping, worksheet_to_toml
from fullstep.job.keys import KEYS
from fullstep.job.toml_text import toml_value

values = st.recursive(
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_any_value_reads_back(value: Any) -> None:
    assert tomllib.loads(f"value = {toml_value(value)}") == {"value": value}


def test_a_worksheet_reads_back() -> None:
    mapping = {
        "schema": 1,
        "model": {"config": {"model_type": "llama", "rope_scaling": {"factor": 8.0, "kind": 'a "b"\n'}, "pad": None}},
        "method": {"kind": "lora", "targets": ["q_proj", "v_proj"]},
        "layout": {"strategy": "fsdp", "reshard_after_forward": True},
        "machine": {"gpu_memory_gib": 79.65, "gpus": 8},
        "goal": {"budget": "1500.00"},
    }
    worksheet = worksheet_from_mapping(mapping)
    text = worksheet_to_toml(worksheet)
    del mapping["model"]["config"]["pad"]  # type: ignore[index]
    assert tomllib.loads(text) == mapping
    assert worksheet_from_mapping(tomllib.loads(text)).as_dict() == mapping
    assert text.startswith("schema = 1\n\n[model]\n")


def test_a_blank_worksheet_is_a_worksheet_without_faults() -> None:
    worksheet = worksheet_from_mapping(tomllib.loads(blank_worksheet()))
    assert worksheet.as_dict() == {"schema": 1, "model": {"name": "meta-llama/Llama-3.1-8B"}}
    assert complete(worksheet).shape.parameters == 8_030_261_248


@pytest.mark.parametrize("key", [key for key in KEYS if key.section and key.dotted != "model.name"], ids=lambda key: key.dotted)
def test_a_blank_worksheet_explains_every_key_with_a_value_that_it_allows(key: Any) -> None:
    section = blank_worksheet().split(f"\n[{key.section}]", 1)[1].split("\n[", 1)[0]
    assert key.explanation in section
    (line,) = re.findall(rf"^# ({key.name} = .*)$", section, flags=re.MULTILINE)
    value = tomllib.loads(line)
    mapping: dict[str, Any] = {"model": {"name": "gpt2"}}
    mapping.setdefault(key.section, {}).update(value)
    worksheet_from_mapping(mapping)
