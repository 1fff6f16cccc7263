"""What a launch file is made from: names, disk, commands, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.formats import Launch, launch_from
from fullstep.job import complete, worksheet_from_mapping

GIANT = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": {"gpu": "H100-SXM", "gpus": 8}}


def launch(sheet: dict[str, Any] | None = None, **chosen: Any) -> Launch:
    return launch_from(complete(worksheet_from_mapping(GIANT | (sheet or {}), "job.toml")), **chosen)


def test_the_disk_is_what_a_reader_adds_up() -> None:
    """8,030,261,248 parameters: 16.1 GB published and as much exported; a checkpoint in bfloat16 is 8.03e9 * (2 + 2 + 2) = 48.2 GB."""
    made = launch({"checkpoint": {"keep": 2}})
    assert made.checkpoints_gb == 170  # 3 * 48.2 + 16.1 = 160.6
    assert made.disk_gb == 230  # and 16.1 + 50
    assert "3 checkpoints of 48.2 GB" in made.disk_note


def test_an_adapter_needs_little_disk() -> None:
    made = launch({"method": {"kind": "lora", "rank": 16}})
    assert made.checkpoints_gb == 10
    assert made.disk_gb == 70  # 16.1 + 50 and less than a gigabyte


@pytest.mark.parametrize(
    ("model", "method", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "full", "llama-3-1-8b-full"),
        ("Qwen/Qwen3-8B", "lora", "qwen3-8b-lora"),
    ],
)
def test_names_are_of_letters_digits_and_hyphens(model: str, method: str, name: str) -> None:
    assert launch({"model": {"name": model}, "method": {"kind": method}}).name == name


def test_no_card_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match=r"machine\.gpu: not stated.*options"):
        launch({"machine": {"gpus": 8}})


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"command": "train.py\nrm -rf x"}, "--command"),
        ({"command": "train.py\x1b[31m"}, "--command"),
        ({"command": "train.py 'open"}, "quotes are closed"),
        ({"command": "  "}, "--command: nothing"),
        ({"command": "x" * 5000}, "5000 characters"),
        ({"measure": "a\u2028b"}, "--measure"),
        ({"setup": "a\u0085b"}, "--setup"),
        ({"checkpoints": "s3://a\nb"}, "--checkpoints"),
        ({"provider": "aws; rm"}, "--provider"),
        ({"region": "$(id)"}, "--region"),
        ({"instance": "../x"}, "--instance"),
        ({"instance": ""}, "--instance"),
        ({"price_per_hour": "cheap"}, "--price-per-hour"),
        ({"price_per_hour": "0"}, "--price-per-hour"),
        ({"price_per_hour": "NaN"}, "--price-per-hour"),
    ],
)
def test_what_is_refused(chosen: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        launch(**chosen)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        launch({"machine": {}}, command="a\nb", region="a b", price_per_hour="-1")
    assert [fault.where.rpartition(" ")[2] for fault in caught.value.faults] == ["--region", "--command", "--price-per-hour", "machine.gpu"]


def test_the_limit_is_the_goal_unless_one_is_stated() -> None:
    goal = {"goal": {"finish_within_hours": 12}}
    assert launch(goal).max_hours == 12
    assert launch(goal, max_hours=3.5).max_hours == 3.5
    assert launch().max_hours is None


def test_the_short_step_is_in_the_words_of_the_framework() -> None:
    assert launch().measure is not None and launch().measure.endswith('--max_steps 5 --output_dir "$MEASURE_DIR"')  # type: ignore[union-attr]
    titan = launch({"step": {"framework": "torchtitan"}, "precision": {"weights": "float32"}}, command="-m torchtitan.train")
    assert titan.measure == '-m torchtitan.train --training.steps 5 --job.dump_folder "$MEASURE_DIR"'
    assert titan.finished_file == ".metadata"
    assert launch(measure="none").measure is None
    assert launch(command="a.py", measure="b.py --x").measure == "b.py --x"
    assert launch(command="a.py", measure="--steps 3").measure == "a.py --steps 3"


@pytest.mark.parametrize("command", ["train.py && echo done", "train.py # now", "{ train.py; }", "train.py | tee log"])
def test_a_line_of_several_commands_has_no_guessed_short_step(command: str) -> None:
    """``--max_steps`` behind the last of them would leave the training whole."""
    made = launch(command=command)
    assert made.measure is None and any("no short step" in note for note in made.notes)
    assert launch(command=command, measure="short.py").measure == "short.py"


def test_a_command_that_cannot_resume_is_warned_of() -> None:
    assert any("neither CHECKPOINT_DIR nor RESUME_FROM" in note for note in launch(command="train.py").notes)
    assert launch(command='train.py --out "$CHECKPOINT_DIR"').notes == ()
