"""A drill on paper and as JSON: the verdict first, then the table, what was predicted beside it, and what was left out on purpose."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from fullstep.api import checkpoint_of
from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.ledger.command_drill import CommandDrill, ComparedStep
from fullstep.ledger.drill import Drill, DrillCheck, DrillControl, DrillElsewhere, DrillExport, DrillLoad, DrillRestart, DrillSave
from fullstep.report.command_drill import command_drill_as_dict, command_drill_text
from fullstep.report.drill_json import drill_as_dict, failed_as_dict
from fullstep.report.drill_text import drill_text, failed_text
from fullstep.report.json import dump
from fullstep.report.paper import Paper

SHEET = worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpus": 2}, "precision": {"weights": "float32"}})
SIZE = round(checkpoint_of(SHEET, "distributed").predicted_bytes)
SAVE = DrillSave(
    mode="thread", step=3, size_bytes=SIZE, files=4, stall_seconds=0.25, published_seconds=4.0, state_seconds=0.125, digest_seconds=0.5,
    slowed_seconds=1.5,
)  # fmt: skip
LOAD = DrillLoad(ranks_saved=2, size_bytes=SIZE, verify_seconds=1.0, load_seconds=2.0, apply_seconds=0.5, rng="restored")
DRILL = Drill(
    verdict="passed", reason="", model="gpt2", device="cpu", ranks=2, strategy="fsdp", saved_at=3, steps=7, rows_per_step=2,
    checks=(DrillCheck("resumed", "losses", True, "bit for bit the same in steps 4 to 7"),),
    controls=(DrillControl("rng", True, "state after loading; losses differ from step 4 on"),),
    save=SAVE, warm_up=SAVE._replace(stall_seconds=2.0), load=LOAD, step_seconds=0.5,
    restart=DrillRestart((("start of the processes", 3.0), ("first step", 1.5))),
    raw_bytes=2 * SIZE, raw_write_seconds=6.0, raw_read_seconds=1.0, staging_bytes=2**30, staging_kept_bytes=2**20,
    elsewhere=None, export=None, notes=("not compiled",), versions=(("torch", "2.13"),), folder="somewhere/drill", is_kept=False,
    seconds=100.0,
    predicted=checkpoint_of(SHEET, "distributed"),
)  # fmt: skip
ELSEWHERE = DrillElsewhere(
    ranks=1, strategy="single", loss_difference=1e-7, gate=9.5e-7, gate_why="8 roundings of float32", mildest_fault=2.3e-5,
    differences=(("parameters", 1e-6, "model.w"),), load=LOAD, why="sums over ranks and rows are made in another order",
)  # fmt: skip


def text(**changed: Any) -> str:
    return " ".join(drill_text(settings_of(SHEET), replace(DRILL, **changed), Paper()).split())


def test_a_pass_is_said_first_and_then_the_table() -> None:
    lines = drill_text(settings_of(SHEET), DRILL, Paper()).splitlines()
    assert lines[0].startswith("gpt2 · full fine-tuning")
    assert lines[2] == "  The drill passed: after the kill the training went on bit for bit as if nothing had happened."
    table = {line[:24].strip(): line[24:].split() for line in lines}
    assert table["save until it counts"] == ["4.00", "s", "-", "3.00", "s"]
    assert table["training paused"] == ["0.25", "s", "-"]
    assert table["size"] == ["1.5", "GB", "1.5", "GB", "(+0.00%)"]
    assert table["load"] == ["3.50", "s", "-", "0.50", "s"]
    assert table["failure to first step"] == ["4.50", "s", "-"]
    assert table["goes on correctly"] == ["bit", "for", "bit"]
    assert all(len(line) <= 100 for line in lines)


def test_what_was_stated_of_storage_gives_times_to_compare_with() -> None:
    sheet = worksheet_from_mapping({**SHEET.as_dict(), "machine": {"gpus": 2, "storage_write_gb_s": 1, "storage_read_gb_s": 0.5}})
    found = text(predicted=checkpoint_of(sheet, "distributed"))
    assert "save until it counts 4.00 s 1.50 s 3.00 s" in found
    assert "load 3.50 s 2.99 s 0.50 s" in found
    assert "Predicted times to save and load are the disk's alone, by the rates that the worksheet states" in found
    measured = "disk's alone, by the rates of the raw writers and readers here, where the worksheet states none"
    assert measured in text(predicted_with="measured") and measured not in found
    assert "Predicted times" not in text(predicted=None)
    assert "Files are those of tensors, .metadata and the manifest fullstep.json; predicted without the manifest." in found


def test_digests_and_the_parts_of_a_load_are_explained() -> None:
    """1 + 2 + 0.5 s of load; the stage of the restart, 6 s, has more in it."""
    found = text()
    assert "writing waited 0.50 s for digests, which are computed beside it" in found
    assert "Loading 3.50 s = 1.00 to verify all digests + 2.00 to read + 0.50 to apply, each of its slowest rank" in found
    assert "the rest of the" not in found
    restart = DrillRestart((("loading the checkpoint", 6.0), ("first step", 1.5)))
    assert "finding the newest one and making ready to load it took the rest of the 6.0 s above" in text(restart=restart)


def test_a_folder_is_named_only_where_it_is_still_there() -> None:
    assert "checkpoints in somewhere/drill" in text(is_kept=True)
    assert "somewhere/drill" not in text(is_kept=False)
    kept, removed = (drill_as_dict(settings_of(SHEET), replace(DRILL, is_kept=is_kept), [])["folder"] for is_kept in (True, False))
    assert (kept, removed) == ("somewhere/drill", None)


def test_losses_that_cannot_be_compared() -> None:
    """Infinite on paper is no number, and null in JSON."""
    apart = ELSEWHERE._replace(loss_difference=math.inf, differences=(("parameters", math.inf, "model.w"),))
    found = text(elsewhere=apart)
    assert "losses cannot be compared: one of them is no number, or no step is common to both" in found
    assert "parameters no number (model.w)" in found and "inf" not in found
    document = json.loads(dump(drill_as_dict(settings_of(SHEET), replace(DRILL, elsewhere=apart), [])))
    assert document["elsewhere"]["loss_difference"] is None and document["elsewhere"]["differences"][0]["largest"] is None


COMMAND = CommandDrill(
    verdict="failed", reason="started again, it logged no step", remedy="", command=("python", "train.py"), by_epoch=False,
    first_step=1, last_step=8,
    killed_after_step=4, resumed_at_step=None, compared=(), largest_difference=0.0, difference_before_kill=0.0, checkpoint_bytes=10,
    checkpoint_files=1, undisturbed_seconds=2.0, killed_to_first_step_seconds=None,
)  # fmt: skip


def test_epochs_are_not_called_steps() -> None:
    """transformers' Trainer prints no step."""
    said = command_drill_text(COMMAND._replace(by_epoch=True, compared=(ComparedStep(0.5, ("1.2",), ("1.2",)),)), Paper())
    assert "Counted        by epoch" in said and "     epoch           undisturbed" in said
    assert "by epoch" not in command_drill_text(COMMAND, Paper())


def test_a_command_of_which_no_step_is_common_to_both_runs() -> None:
    """Nothing is not the same as no difference."""
    found = " ".join(command_drill_text(COMMAND, Paper()).split())
    assert "Compared nothing: no step was logged by both the undisturbed run and the one that went on" in found
    assert command_drill_as_dict(COMMAND)["largest_difference"] is None
    shared = COMMAND._replace(compared=(ComparedStep(5, ("1.0",), ("1.0",)),))
    assert command_drill_as_dict(shared)["largest_difference"] == 0.0


def test_a_size_that_is_off_by_more_than_a_hundredth_is_marked() -> None:
    assert "(+2.00% !)" in text(save=SAVE._replace(size_bytes=round(SIZE * 1.02)))
    assert "(+0.90%)" in text(save=SAVE._replace(size_bytes=round(SIZE * 1.009)))
    assert "size 1.5 GB - files 4 -" in text(predicted=None)


@pytest.mark.parametrize(
    ("verdict", "reason", "expected"),
    [
        ("failed", "resumed: losses: differ", ["The drill FAILED: resumed: losses: differ.", "goes on correctly NO"]),
        ("void", "nobody would notice", ["The drill is VOID: nobody would notice.", "goes on correctly not proven"]),
        ("passed", "to within rounding: because", ["The drill passed to within rounding: because.", "goes on correctly within rounding"]),
    ],
)
def test_verdicts_in_words(verdict: Any, reason: str, expected: list[str]) -> None:
    found = text(verdict=verdict, reason=reason, checks=(DrillCheck("uninterrupted", "twice", None, "differs"),))
    assert all(words in found for words in expected)


def test_checks_and_controls_say_how_they_went() -> None:
    controls = (DrillControl("moments", None, "none"), DrillControl("loader", False, "went on the same"))
    found = text(checks=(DrillCheck("a", "b", False, "c"), DrillCheck("d", "e", None, "f")), controls=controls)
    assert "FAILED a: b: c" in found
    assert "open d: e: f" in found
    assert "none moments: none" in found
    assert "MISSED data position: went on the same" in found


def test_the_parts_that_few_drills_have() -> None:
    export = DrillExport(size_bytes=5 * 10**8, files=3, seconds=2.0, tensors=148, differing=())
    found = text(elsewhere=ELSEWHERE, export=export, blocks=(2, 12))
    assert "SHORTENED 2 of the model's 12 blocks" in found
    assert "losses differ by 1.0e-07 at most" in found
    assert "the mildest fault made on purpose gives 2.3e-05" in found
    assert "does NOT catch" not in found
    assert "does NOT catch" in text(elsewhere=ELSEWHERE._replace(mildest_fault=1e-7))
    assert "Export 500 MB in 3 files, 148 tensors, written in 2.0 s" in found
    assert "host memory of all ranks: 1.07 GB more at most while saving, 1 MiB stay" in found
    assert "host memory: this system does not say" in text(staging_bytes=None)


def test_json_has_what_was_measured_and_what_made_it() -> None:
    found = json.loads(dump(drill_as_dict(settings_of(SHEET), replace(DRILL, elsewhere=ELSEWHERE, blocks=(2, 12)), ["fullstep", "drill"])))
    assert found["verdict"] == "passed"
    assert found["evidence"] == "measured"
    assert found["saved"]["size_bytes"] == found["predicted"]["size_bytes"] == SIZE
    assert found["failure_to_first_step"] == {"seconds": 4.5, "parts": {"start of the processes": 3.0, "first step": 1.5}}
    assert found["elsewhere"]["differences"] == [{"state": "parameters", "largest": 1e-6, "tensor": "model.w"}]
    assert found["controls"][0]["caught"] is True
    assert (found["program"]["blocks"], found["program"]["blocks_of_model"]) == (2, 12)
    assert found["command"] == ["fullstep", "drill"]
    assert found["versions"] == {"torch": "2.13"}


def test_a_drill_that_ended_early_says_why() -> None:
    assert failed_text("resumed", "damaged.", Paper()) == "  The drill FAILED: resumed: damaged.\n"
    assert failed_as_dict("resumed", "damaged")["reason"] == "resumed: damaged"
