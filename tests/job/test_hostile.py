"""Whatever comes in, the answer is a job or an InputError and nothing else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_jobs import LLAMA

from fullstep.errors import InputError
from fullstep.job import Job, complete, edit, read_worksheet, worksheet_from_json, worksheet_from_mapping
from fullstep.job.keys import KEYS, SECTIONS, Key

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["8xH100-SXM", "80GB", "80G", "bf16", "all-linear", "../x", "1e9", "gpt2", "\0", "\ud800"])
)  # fmt: skip
anything = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4))


def allowed(key: Key) -> st.SearchStrategy[Any]:
    """Values that a key allows when nothing else is stated (of choices and numbers), small enough to be sensible."""
    if key.kind == "choice":
        return st.sampled_from(key.choices)
    if key.kind == "boolean":
        return st.booleans()
    if key.kind in ("integer", "count"):
        return st.integers(int(key.low), int(min(key.high, 64)))
    if key.kind in ("number", "size"):
        return st.floats(key.low, min(key.high, 10**6)).filter(lambda number: number > 0)
    return st.nothing()


settable = [key for key in KEYS if key.section and key.kind in ("choice", "boolean", "integer", "count", "number", "size")]
sound_keys = st.lists(st.sampled_from(settable).flatmap(lambda key: st.tuples(st.just(key), allowed(key))), max_size=12)


def job_or_error(mapping: object) -> Job | InputError:
    try:
        return complete(worksheet_from_mapping(mapping))
    except InputError as error:
        assert error.faults
        assert len(str(error)) < 60_000
        return error


@given(anything)
def test_anything_at_all(value: Any) -> None:
    assert isinstance(job_or_error(value), InputError)


@given(st.dictionaries(st.sampled_from(["schema", *SECTIONS]), anything, max_size=5))
def test_anything_in_sections(sections: dict[str, Any]) -> None:
    job_or_error({"model": {"config": LLAMA}, **sections})


@given(st.sampled_from([key for key in KEYS if key.section]), anything)
def test_any_value_under_any_key(key: Key, value: Any) -> None:
    mapping: dict[str, dict[str, Any]] = {"model": {"config": LLAMA, "name": "tiny"}}
    mapping.setdefault(key.section, {})[key.name] = value
    job_or_error(mapping)


@given(st.dictionaries(st.sampled_from(list(LLAMA)), anything, max_size=3))
def test_any_config(changes: dict[str, Any]) -> None:
    job_or_error({"model": {"config": {**LLAMA, **changes}}})


@given(sound_keys)
def test_sound_values_in_any_combination(pairs: list[tuple[Key, Any]]) -> None:
    mapping: dict[str, dict[str, Any]] = {"model": {"config": LLAMA, "name": "tiny"}}
    for key, value in pairs:
        mapping.setdefault(key.section, {})[key.name] = value
    found = job_or_error(mapping)
    if isinstance(found, Job):
        assert found.layout.data_parallel % found.layout.shards == 0
        listed = {assumption.key for assumption in found.assumptions}
        assert not listed & {key.dotted for key, _ in pairs}
        again = complete(worksheet_from_mapping(json.loads(json.dumps(found.worksheet.as_dict()))))  # type: ignore[attr-defined]
        assert again == found
        assert complete(edit(found.worksheet, {})) == found


@given(st.text(max_size=300))
def test_any_text_as_json(text: str) -> None:
    with contextlib.suppress(InputError):
        worksheet_from_json(text)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")),
    suffix=st.sampled_from(["toml", "yaml", "json", "txt"]),
)
def test_any_file(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"worksheet.{suffix}"
    path.write_bytes(data)
    try:
        read_worksheet(path)
    except InputError as error:
        assert "worksheet" in str(error)
