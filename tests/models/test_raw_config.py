"""The config that a worksheet's section ``model`` means, from each of its sources, also of types that the formulas do not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.job import worksheet_from_mapping
from fullstep.models import bundled_config, catalogue, find_model, hub, model_config, shape_from_config

MAMBA = {"model_type": "mamba", "hidden_size": 64, "time_step_limit": [0.0, 1.0], "nested": {"list": [1, None, {"a": True}]}}


def section(**keys: Any) -> Any:
    return worksheet_from_mapping({"model": keys}).section("model")


def test_an_inline_table_comes_back_in_plain_lists_and_tables() -> None:
    config, name = model_config(section(config=MAMBA))
    assert config == MAMBA
    assert type(config["nested"]["list"]) is list
    assert name == "the inline config"
    assert model_config(section(config=MAMBA, name="my-mamba"))[1] == "my-mamba"


@pytest.mark.parametrize("inside", ["", "config.json"])
def test_a_file_or_its_folder(inside: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MAMBA))
    path = str(tmp_path / inside)
    assert model_config(section(config=path)) == (MAMBA, path)
    assert model_config(section(config=path, name="my-mamba")) == (MAMBA, "my-mamba")


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "llama-3.1-8b", "mixtral-8x7b"])
def test_a_bundled_model_by_any_of_its_names(name: str) -> None:
    config, hub_id = model_config(section(name=name))
    assert config == bundled_config(hub_id)
    assert shape_from_config(config, hub_id).parameters == find_model(name).parameters
    config["hidden_size"] = 1
    assert model_config(section(name=name))[0] == bundled_config(hub_id)


def test_any_hub_id_where_the_hub_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "hub_is_installed", lambda: True)
    monkeypatch.setattr(hub, "fetch_config", lambda name: {**MAMBA, "from": name})
    assert model_config(section(name="state-spaces/not-bundled")) == (
        {**MAMBA, "from": "state-spaces/not-bundled"},
        "state-spaces/not-bundled",
    )


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"name": "no-such-model"}, "not bundled"),
        ({"name": ""}, "not the name of a model"),
        ({}, "not the name of a model"),
        ({"config": "/no/such/config.json"}, "there is no such file"),
        ({"config": {"model_type": "x", "size": 10**5000}}, "JSON"),
    ],
)
def test_what_is_not_there(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        model_config(keys)


def test_names_are_found_in_one_place() -> None:
    for model in catalogue.bundled_models():
        assert catalogue.config_by_name(model.name) == (bundled_config(model.name), model.name)
