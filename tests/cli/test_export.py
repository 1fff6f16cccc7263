"""``fullstep export`` by way of ``main``."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from market_by_hand import FAIR, offer

from fullstep.cli import main
from fullstep.offers.currency import default_rates
from fullstep.offers.market import Market
from fullstep.offers.offer import Offer
from fullstep.plan.renting import Renter

WORKSHEET = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "method": {"kind": "lora"}, "machine": {"gpu": "H100-SXM", "gpus": 8}}

ON_THE_MARKET = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora", "--data-tokens", "1e7"]


@pytest.fixture
def sheet(tmp_path: Path) -> str:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(WORKSHEET), encoding="utf-8")
    return str(path)


def test_one_file_goes_to_standard_output(sheet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", sheet, "--to", "skypilot", "--command", "train.py"]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out)["resources"]["accelerators"] == {"H100": 8}
    assert "Memory: " in out and "usable per GPU: fits (estimated)" in out


def test_a_probe_takes_the_place_of_the_run(sheet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", sheet, "--to", "torchrun", "--probe", "--probe-options=--steps 20"]) == 0
    text = capsys.readouterr().out
    assert main(["export", sheet, "--to", "torchrun", "--probe", "--method", "qlora"]) == 0  # bitsandbytes is wanted there, not here
    assert "fullstep probe - " in text and "--steps 20" in text
    assert "train.py" not in text and "Needs fullstep with its extra lab" in text


def test_several_files_are_told_apart(sheet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", sheet, "--to", "dstack"]) == 0
    out = capsys.readouterr().out
    assert [document["type"] for document in yaml.safe_load_all(out)] == ["fleet", "task"]
    assert "# llama-3-1-8b-lora.task.dstack.yml\n" in out


def test_flags_alone_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora", "--gpu", "H100-SXM", "--gpus", "8", "--nodes", "2"]
    assert main(["export", "--to", "slurm", *words, "--interruptible", "--max-hours", "24"]) == 0
    out = capsys.readouterr().out
    assert "#SBATCH --time=1440\n" in out and "#SBATCH --nodes=2\n" in out and "# Network: " in out


def test_an_option_of_plan_can_be_exported(sheet: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", sheet, "--json"]) == 0
    option = json.loads(capsys.readouterr().out)["options"][0]["worksheet"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(option).encode())))
    assert main(["export", "-", "--to", "torchrun"]) == 0
    assert "torchrun --standalone" in capsys.readouterr().out


def test_what_does_not_fit_is_written_and_said(sheet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", sheet, "--to", "torchrun", "--gpu", "T4", "--gpus", "1", "--set", "precision.compute=float16"]) == 3
    assert ": does not fit (estimated)" in capsys.readouterr().out


def test_a_file_is_new_or_forced(sheet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "launch.sh"
    words = ["export", sheet, "--to", "torchrun", "--output", str(target)]
    assert main(words) == 0
    assert capsys.readouterr().out == ""
    target.write_text("mine", encoding="utf-8")
    assert main(words) == 2
    assert "a file is there already" in capsys.readouterr().err and target.read_text(encoding="utf-8") == "mine"
    assert main([*words, "--force"]) == 0
    assert "torchrun" in target.read_text(encoding="utf-8")


def test_dstack_writes_into_a_folder_all_or_nothing(sheet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "launch"
    words = ["export", sheet, "--to", "dstack", "--output", str(folder)]
    assert main(words) == 0
    names = [path.name for path in sorted(folder.iterdir())]
    assert names == ["llama-3-1-8b-lora.fleet.dstack.yml", "llama-3-1-8b-lora.task.dstack.yml"]
    (folder / names[0]).unlink()
    assert main(words) == 2
    assert not (folder / names[0]).exists()
    assert "task.dstack.yml" in capsys.readouterr().err


def test_any_tool_writes_into_a_folder(sheet: str, tmp_path: Path) -> None:
    assert main(["export", sheet, "--to", "slurm", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "llama-3-1-8b-lora.sbatch").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--to", "docker"], "--to"),
        ([], "--to"),
        (["--to", "slurm", "--command", "a\nb"], "--command"),
        (["--to", "slurm", "--probe", "--command", "train.py"], "--probe: beside --command or --measure"),
        (["--to", "slurm", "--probe-options", "--steps 3"], "--probe-options"),
        (["--to", "slurm", "--probe", "--probe-options=a\nb"], "--probe-options"),
        (["--to", "slurm", "--probe", "--probe-options=--stepps 20"], "--stepps"),
        (["--to", "slurm", "--probe", "--probe-options=-- rm -rf /"], "options alone: the worksheet is the one that is exported"),
        (["--to", "slurm", "--probe", "--strategy", "zero3"], 'layout.strategy: "zero3", which cannot be probed yet'),
        (["--to", "slurm", "--max-hours", "0"], "hours above 0"),
        (["--to", "slurm", "--max-hours", "nan"], "hours above 0"),
        (["--to", "skypilot", "--provider", "nowhere"], "aws, azure, gcp"),
        (["--to", "torchrun", "--output", "no/such/folder/file.sh"], "cannot be written"),
    ],
)
def test_bad_input_is_told(words: list[str], says: str, sheet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", sheet, *words]) == 2
    captured = capsys.readouterr()
    assert says in captured.err and captured.out == ""


def test_a_worksheet_without_a_card_takes_one_of_the_market(capsys: pytest.CaptureFixture[str]) -> None:
    sheet = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora", "--data-tokens", "2e7"]
    assert main(["export", *sheet, "--to", "skypilot", "--choose", "on-demand"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert document["num_nodes"] == 1 and document["resources"]["infra"] and not document["resources"].get("use_spot")
    assert main(["export", *sheet, "--to", "skypilot", "--choose", "interruptible"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["resources"]["use_spot"] is True


def test_nothing_on_the_market_is_an_input_error(capsys: pytest.CaptureFixture[str]) -> None:
    sheet = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora"]
    assert main(["export", *sheet, "--to", "slurm", "--choose", "own"]) == 2
    assert "no machine on the market is own" in capsys.readouterr().err
    assert main(["export", *sheet, "--data-tokens", "1e12", "--budget", "1", "--to", "slurm"]) == 2
    assert "budget" in capsys.readouterr().err


def test_a_provider_without_a_card_takes_what_it_rents(capsys: pytest.CaptureFixture[str]) -> None:
    sheet = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora", "--data-tokens", "2e7", "--to", "skypilot"]
    assert main(["export", *sheet, "--provider", "aws", "--choose", "on-demand"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["resources"]["infra"].startswith("aws") and "# Chosen: aws us-east-1" in text
    assert main(["export", *sheet, "--provider", "awz"]) == 2
    assert 'Did you mean "aws"?' in capsys.readouterr().err


def test_a_price_that_was_seen_is_no_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """Prices move: what somebody asked months ago would only keep dstack from finding anything."""
    sheet = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora", "--data-tokens", "2e7", "--to", "dstack", "--provider", "runpod"]
    assert main(["export", *sheet]) == 0
    assert "max_price" not in capsys.readouterr().out
    assert main(["export", *sheet, "--gpu", "H100-SXM", "--price-per-hour", "3.5"]) == 0
    assert "max_price: 3.5" in capsys.readouterr().out


def the_market_is(monkeypatch: pytest.MonkeyPatch, *offers: Offer) -> None:
    terms = {offer.provider: FAIR for offer in offers}
    monkeypatch.setattr("fullstep.cli.export.renter_from", lambda _: Renter(Market(offers, terms, default_rates())))


def test_interruptible_machines_where_checkpoints_would_be_lost_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SkyPilot mounts no bucket on Verda; of what costs more, on-demand machines lose nothing."""
    spot, steady = offer("H100-SXM", 1, None, "1", provider="verda"), offer("H100-SXM", 1, "3", provider="verda")
    words = ["export", *ON_THE_MARKET, "--to", "skypilot"]
    the_market_is(monkeypatch, spot, steady)
    assert main(words) == 0
    assert "use_spot" not in yaml.safe_load(capsys.readouterr().out)["resources"]
    assert main([*words, "--option", "0"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["resources"]["use_spot"] is True
    the_market_is(monkeypatch, spot)
    assert main(words) == 2
    assert "--checkpoints: verda is interruptible, and skypilot keeps nothing there" in capsys.readouterr().err


def test_an_option_is_taken_by_its_place(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    the_market_is(monkeypatch, offer("H100-SXM", 1, "3"), offer("H200-SXM", 1, "9"))
    words = ["export", *ON_THE_MARKET, "--to", "torchrun", "--option"]
    assert main([*words, "1"]) == 0
    assert "1 GPU H200-SXM each" in capsys.readouterr().out
    assert main([*words, "2"]) == 2
    assert "--option: 2 of 2 options; allowed: a place from 0 to 1" in capsys.readouterr().err
    assert main([*words, "0", "--choose", "fastest"]) == 2
    assert "--choose: not allowed with argument --option" in capsys.readouterr().err
