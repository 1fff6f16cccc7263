"""`fullstep probe`: what cannot work is said before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from probes_by_hand import probe_by_hand

from fullstep.api.probed import Probed
from fullstep.cli import main
from fullstep.errors import Fault, InputError
from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.ledger.probe import Probe

SHEET = ("probe", "--model", "gpt2", "--cpu", "1", "--no-trace")


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*_: object, **__: object) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr("fullstep.api.probed.run_probe", ran)
    monkeypatch.setattr("fullstep.api.probed.require_libraries", lambda _: ())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--evidence", "/dev/null"), '--evidence: "/dev/null": /dev/null is no folder that can be written'),
        (("--evidence", "nosuch://x"), "nosuch"),
        (("--save-to", "/dev/null/x"), '--save-to: "/dev/null/x"'),
        (("--steps", "2"), "--steps: found 2; allowed: at least 3"),
        (("--limit-gib", "0"), "--limit-gib: found 0; allowed: more than 0"),
        (("--seed", "-1"), "--seed: found -1; allowed: 0 to 4,294,967,295"),
        (("--snapshot", "a.pickle"), "--snapshot: beside --cpu; allowed: GPUs"),
        (("--silent-seconds", "0"), "--silent-seconds: found 0; allowed: more than 0"),
        (("--set", "step.loss=fused"), "which cannot be probed yet"),
        (("--set", "layout.strategy=zero3"), "which cannot be probed yet; allowed: single, ddp, fsdp, fsdp_grad_op, hsdp"),
    ],
)
def test_a_fault(options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHEET, *options]) == 2
    assert said in capsys.readouterr().err


def test_a_command_is_not_run_where_its_record_cannot_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--evidence", "/dev/null", "--", "touch", str(tmp_path / "ran")]) == 2
    assert '--evidence: "/dev/null": /dev/null is no folder that can be written' in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("python train.py --lr 1", "-- python train.py --lr 1"),
        ("--evidence records --count-memory /bin/python3.11 -m tune", "--evidence records --count-memory -- /bin/python3.11 -m tune"),
        ("torchrun --nproc-per-node 2 train.py", "-- torchrun --nproc-per-node 2 train.py"),
        ("./train.py", "-- python ./train.py"),
    ],
)  # fmt: skip
def test_a_command_without_dashes(words: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("probe", "drill")[: 1 if "--evidence" in words else 2]:
        assert main([command, *words.split()]) == 2
        assert f"Did you mean: fullstep {command} {meant}\n" in capsys.readouterr().err


def test_options_of_worksheets_that_say_nothing_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--cpu", "0", "--node-rank", "0", "--", "true"]) == 2
    assert "--cpu, --node-rank with a command after --; allowed: only with a worksheet" in capsys.readouterr().err


def test_nothing_to_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--cpu", "1"]) == 2
    assert "fullstep probe job.toml --cpu 1, or: fullstep probe -- python train.py" in capsys.readouterr().err


def test_weights_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before torch is loaded; of an id the hub is asked."""
    for where, said in (
        (tmp_path, "a folder without *.safetensors and *.bin"),
        (tmp_path / "no", "no such folder"),
        ("./no", "no such folder"),
    ):
        assert main([*SHEET, "--real-weights", str(where)]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    for weights in (str(tmp_path), "EleutherAI/pythia-14m", "gpt2"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fullstep.api.probed.run_probe", _ran)
            patch.setenv("FULLSTEP_DEBUG", "1")
            with pytest.raises(ZeroDivisionError):
                main([*SHEET, "--real-weights", weights])


def _ran(*_: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("lost", ["", "save", "record"])
def test_what_was_to_be_saved_or_kept_and_is_not_ends_with_4(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def probed(*_: object, keep: Callable[[Probe], None], **__: object) -> Probed:
        seen = probe_by_hand(environment={"save_failed": "No space left"} if lost == "save" else {})
        keep(seen)
        return Probed(settings_of(worksheet_from_mapping({"model": {"name": "gpt2"}})), seen, None, (), None)

    monkeypatch.setattr("fullstep.api.probed.probe", probed)
    if lost == "record":
        monkeypatch.setattr("fullstep.formats.probe_record.save", _refused)
    assert main([*SHEET, "--evidence", str(tmp_path)]) == (4 if lost else 0)
    said = capsys.readouterr()
    assert ("THE RECORD IS NOT KEPT" in said.err) is (lost == "record") and "The probe completed" in said.out


def _refused(*_: object) -> str:
    raise InputError(Fault("records", "a full disk", "room"))


def test_a_probe_saves_into_a_folder_of_its_own(tmp_path: Path) -> None:
    """Else it would take away checkpoints of a training that lie in the one that is named."""
    from fullstep.lab.probe.front.probe import _own_folder  # noqa: PLC0415

    own = _own_folder(str(tmp_path))
    assert Path(own).parent == tmp_path and Path(own).name.startswith("fullstep-probe-")
    assert _own_folder("s3://bucket/runs/").startswith("s3://bucket/runs/fullstep-probe-") and _own_folder("") == ""
