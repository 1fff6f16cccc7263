"""What a drill is asked for, and what is refused before any process starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullstep.api import devices, drill_room, drilled, worksheet_from_mapping
from fullstep.api.checkpoints import checkpoint_of
from fullstep.api.drilled import drill
from fullstep.errors import InputError, UnsupportedError
from fullstep.lab.drill import Wanted
from fullstep.ledger import Checkpoint
from fullstep.ledger.drill import Drill

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 256}
SHEET = {"model": {"config": CONFIG, "name": "mine"}, "precision": {"weights": "float32"}, "batch": {"micro_batch": 2}}


class ToldError(Exception):
    """Carries what was wanted of the lab."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted


@pytest.fixture(autouse=True)
def _no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(wanted: Wanted, _progress: Any) -> Drill:
        raise ToldError(wanted)

    monkeypatch.setattr(drilled, "run_drill", told)
    monkeypatch.setattr(drilled, "require_libraries", lambda _: (("torch", "2.13"),))


def wanted(sheet: dict[str, Any] | None = None, to: str = "somewhere", **options: Any) -> Wanted:
    with pytest.raises(ToldError) as told:
        drill(worksheet_from_mapping({**SHEET, **(sheet or {})}), to, **{"cpu": 2, **options})
    return told.value.wanted


def test_ranks_take_the_place_of_the_worksheets_machine() -> None:
    found = wanted({"machine": {"gpu": "H100-SXM", "gpus": 8, "nodes": 2}})
    assert (found.ranks, found.device, found.settings.layout.data_parallel) == (2, "cpu", 2)
    assert found.settings.rows_per_step == 4
    assert found.settings.layout.strategy == "fsdp"
    assert found.elsewhere is None
    assert found.model == "mine"


def test_the_mode_is_the_worksheets_unless_stated() -> None:
    assert wanted().mode == "sync"
    stated = {"checkpoint": {"asynchronous": True, "async_mode": "process"}}
    assert wanted(stated).mode == "process"
    assert wanted(stated, mode="thread").mode == "thread"


@pytest.mark.parametrize(
    ("cpu", "options", "ranks", "strategy"),
    [
        (2, {"ranks_after": 1}, 1, "single"),
        (2, {"ranks_after": 4}, 4, "fsdp"),
        (1, {"ranks_after": 2}, 2, "fsdp"),
        (2, {"after": {"layout.strategy": "ddp"}}, 2, "ddp"),
        (4, {"ranks_after": 2, "after": {"layout.strategy": "fsdp_grad_op"}}, 2, "fsdp_grad_op"),
    ],
)
def test_elsewhere_takes_the_same_rows(cpu: int, options: dict[str, Any], ranks: int, strategy: str) -> None:
    found = wanted(cpu=cpu, **options)
    assert found.elsewhere is not None
    assert found.elsewhere.ranks == found.elsewhere.settings.layout.data_parallel == ranks
    assert found.elsewhere.settings.layout.strategy == strategy
    assert found.settings.rows_per_step % ranks == 0


def test_fewer_blocks_and_shorter_rows_are_those_of_worksheet_and_prediction() -> None:
    found = wanted(layers=2, tokens=77)
    assert found.blocks == (2, 4)
    assert found.config["num_hidden_layers"] == 2
    assert found.settings.batch.sequence_tokens == 77
    assert found.worksheet["model"]["config"]["num_hidden_layers"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu": 0}, "--cpu: found 0"),
        ({"ranks_after": 3}, r"--ranks-after: found 3; allowed: a divisor of the 4 rows of a step. For example --set batch.accumulation=3"),
        ({"ranks_after": 0}, r"--ranks-after: found 0; allowed: a divisor of the 4 rows of a step. For example --ranks-after 1\."),
        ({"ranks_after": -2}, r"--ranks-after: found -2; .* For example --ranks-after 1\."),
        ({"after": {"method.kind": "lora"}}, "--after: method.kind, which makes another training"),
        ({"layers": 9}, "--layers: found 9; allowed: 1 to 4"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        drill(worksheet_from_mapping(SHEET), "somewhere", **{"cpu": 2, **options})


def test_the_remedy_for_rows_that_cannot_be_divided_helps() -> None:
    stated = {**SHEET, "batch": {"micro_batch": 2, "global_rows": 8}}
    with pytest.raises(InputError, match=r"a divisor of the 8 rows of a step. For example --set batch\.global_rows=24"):
        drill(worksheet_from_mapping(stated), "somewhere", cpu=2, ranks_after=3)
    for batch in ({"micro_batch": 2, "global_rows": 24}, {"micro_batch": 2, "accumulation": 3}):
        found = wanted({"batch": batch}, ranks_after=3).elsewhere
        assert found is not None and found.ranks == 3


def test_where_nothing_can_be_left_out_another_way_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A model of two blocks is drilled with one, and one of one block not with fewer."""
    monkeypatch.setattr(drill_room, "_available_bytes", lambda: 10)
    monkeypatch.setattr(drill_room, "_free_bytes", lambda _: 10)
    said = {}
    for layers in (3, 2, 1):
        with pytest.raises(InputError) as error:
            drill(worksheet_from_mapping(SHEET), str(tmp_path), cpu=2 if layers > 1 else 1, layers=layers)
        said[layers] = [fault.remedy for fault in error.value.faults]
    assert said[3][0] == "Drill fewer blocks of the model: --layers 2. Fewer ranks take less: --cpu 1."
    assert said[2][1] == "Drill fewer blocks of the model: --layers 1. Or another disk."
    assert said[1] == ["A machine with more memory, or a smaller model.", "Use another disk."]


def test_an_export_is_counted_where_it_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In bfloat16 4 blocks of 64 and 256 words: a few hundred kB; the checkpoints lie elsewhere where there is a URL."""
    predicted = wanted_checkpoint()
    asked: list[Path] = []

    def free(path: Path) -> int:
        asked.append(path)
        return limit

    monkeypatch.setattr(drill_room, "_free_bytes", free)
    limit = int(4 * predicted.resumable_bytes + predicted.export_bytes / 2)
    assert wanted(to=str(tmp_path)).exports is False
    with pytest.raises(InputError, match=r"--to: .* of disk for a while"):
        drill(worksheet_from_mapping(SHEET), str(tmp_path), cpu=2, export=True)
    assert asked == [tmp_path] * 2
    pytest.importorskip("fsspec")
    assert wanted(to=f"file://{tmp_path}", export=True).exports is True
    limit = int(predicted.export_bytes / 2)
    with pytest.raises(InputError, match=r"TMPDIR: .* of disk for a while"):
        drill(worksheet_from_mapping(SHEET), f"file://{tmp_path}", cpu=2, export=True)


def wanted_checkpoint() -> Checkpoint:
    """Of the worksheet on two ranks."""
    return checkpoint_of(worksheet_from_mapping({**SHEET, "machine": {"gpus": 2}}), "distributed")


def test_a_place_that_several_processes_cannot_write_is_refused_first() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match='--to: "memory://runs": files of memory:// live inside of one process'):
        drill(worksheet_from_mapping(SHEET), "memory://runs", cpu=0)


def test_no_more_ranks_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_COUNT", "print(2)")
    with pytest.raises(InputError, match=r"--ranks-after: found 4; allowed: 1 to 2, the GPUs that torch sees. --cpu 2 drills"):
        drill(worksheet_from_mapping(SHEET), "somewhere", ranks_after=4)
    assert wanted(cpu=None, ranks_after=1).device == "cuda"
    assert wanted(ranks_after=4).device == "cpu"


def test_limits_hold_for_both_layouts_and_name_the_key_in_its_file() -> None:
    sheet = worksheet_from_mapping({**SHEET, "optimizer": {"name": "lion"}}, "job.toml")
    with pytest.raises(UnsupportedError, match=r'job\.toml: optimizer\.name: "lion"'):
        drill(sheet, "somewhere", cpu=2)
    with pytest.raises(UnsupportedError, match=r'layout\.strategy: "zero3"'):
        drill(worksheet_from_mapping(SHEET), "somewhere", cpu=2, after={"layout.strategy": "zero3"})


def test_without_gpus_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_COUNT", "print(0)")
    with pytest.raises(InputError, match="torch sees no GPU here; allowed: at least one GPU, or --cpu N"):
        drill(worksheet_from_mapping(SHEET), "somewhere")
    monkeypatch.setattr(devices, "_COUNT", "print(3)")
    assert (wanted(cpu=None).ranks, wanted(cpu=None).device) == (3, "cuda")


def test_what_does_not_fit_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Llama-3.1-8B in float32: 32 GB of weights on each of two ranks while they are built, 96 GB of state, four times that on disk."""
    large = {**SHEET, "model": {"name": "meta-llama/Llama-3.1-8B"}}
    monkeypatch.setattr(drill_room, "_available_bytes", lambda: 190 * 10**9)
    monkeypatch.setattr(drill_room, "_free_bytes", lambda _: 380 * 10**9)
    with pytest.raises(InputError) as error:
        drill(worksheet_from_mapping(large), str(tmp_path), cpu=2)
    memory, disk = error.value.faults
    assert memory.found == "about 180.9 GiB of host memory for all ranks, and 177.0 GiB are free"
    assert disk.found == "359.0 GiB of disk for a while, and 353.9 GiB are free"
    assert "--layers 2" in memory.remedy
    assert "Or another disk" in disk.remedy
    monkeypatch.setattr(drill_room, "_available_bytes", lambda: 200 * 10**9)
    monkeypatch.setattr(drill_room, "_free_bytes", lambda _: 400 * 10**9)
    assert wanted(large, to=str(tmp_path)).ranks == 2
    with pytest.raises(InputError, match=r"about 329\.8 GiB of host memory"):  # one rank compares three states of 96 GB
        drill(worksheet_from_mapping(large), str(tmp_path), cpu=2, ranks_after=1)
