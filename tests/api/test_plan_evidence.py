"""A plan with records beside it: by way of ``fullstep plan --evidence``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from links_by_hand import link_by_hand, link_record
from records_by_hand import H100, keep, sheet
from trace_by_hand import TRACE

from fullstep.calibration.narrowing import narrowed
from fullstep.cli import main
from fullstep.formats.probe_record import save_link, sealed
from fullstep.job import complete, worksheet_from_mapping
from fullstep.physics import estimate_memory
from fullstep.physics.timing.step import step_time
from fullstep.quantities import GIB, MIB

OWN = '[[machine]]\nname = "box"\ngpu = "{}"\ngpus = 1\npower_kw = "1"\npower_price_per_kwh = "0.2"\n'


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the cache nor the machines of whoever runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def plan(capsys: pytest.CaptureFixture[str], of: dict[str, Any], *more: str) -> str:
    Path("job.json").write_text(json.dumps(of))
    assert main(["plan", "job.json", *more]) == 0
    return capsys.readouterr().out


def planned(capsys: pytest.CaptureFixture[str], of: dict[str, Any], *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan(capsys, of, *more, "--json"))
    return found


def two(micro_batch: int, strategy: str = "ddp") -> dict[str, Any]:
    """On two GPUs, of which a plan offers DDP, gradients divided, and all divided."""
    return {**sheet(micro_batch), "machine": {"gpu": "H100-SXM", "gpus": 2}, "layout": {"strategy": strategy}}


def test_the_very_option_is_measured_and_near_ones_are_narrowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """100 MiB and 2 s stand for the worksheet as written; FSDP of other rows lies half way from likely to high in its own bounds."""
    same = keep(tmp_path / "evidence", 100 * MIB, of=two(4), ranks=2)
    own = estimate_memory(complete(worksheet_from_mapping(two(8, "fsdp")))).allocated
    near = keep(tmp_path / "evidence", (own.likely + own.high) / 2, of=two(8, "fsdp"), ranks=2)
    plain, found = (planned(capsys, two(4), *more) for more in ((), ("--evidence", "evidence")))
    assert [option["changes"] for option in plain["options"]] == [option["changes"] for option in found["options"]]
    of = {option["changes"].get("layout.strategy"): option for option in found["options"]}
    assert of[None]["memory"]["evidence"] == "measured" and of[None]["memory"]["allocated_peak_bytes"]["high"] == 100 * MIB
    assert of[None]["step"]["seconds"]["likely"] == 2.0 and of[None]["records"] == [{"file": same, "match": "same"}]
    assert "measured" not in of[None]["worksheet"]
    assert of["fsdp"]["memory"]["evidence"] == "estimated" and of["fsdp"]["records"] == [{"file": near, "match": "near"}]
    formulas = estimate_memory(complete(worksheet_from_mapping(of["fsdp"]["worksheet"]))).allocated
    assert of["fsdp"]["memory"]["allocated_peak_bytes"]["likely"] == pytest.approx(narrowed(formulas, [0.5]).likely, abs=4)
    assert of["fsdp_grad_op"] == next(option for option in plain["options"] if option["changes"] == of["fsdp_grad_op"]["changes"])
    told = {each["file"]: each for each in found["records"]["used"]}
    assert (told[same]["replaced"], told[same]["narrowed"], told[same]["options"]) == (1, 0, 3)
    assert (told[near]["replaced"], told[near]["narrowed"]) == (0, 1) and found["records"]["refused"] == []


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trace is the one made by hand: 25 GiB."""
    monkeypatch.setattr("fullstep.api.traced.trace_step", lambda *_, **__: TRACE)
    monkeypatch.setattr("fullstep.api.witness.require_libraries", lambda _: None)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("device", "more_mib"), [("cpu", 64), (H100, 0)])
def test_the_very_program_outranks_its_trace(device: str, more_mib: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On processors what it allocated, with the 64 MiB that cuBLAS has beside it."""
    size = round(estimate_memory(complete(worksheet_from_mapping(two(4)))).allocated.likely)
    keep(tmp_path / "evidence", size - more_mib * MIB, of=two(4), ranks=2, device=device)
    found = planned(capsys, two(4), "--evidence", "evidence", "--trace")
    (own,) = (option for option in found["options"] if option.get("records"))
    assert own["trace"] is not None and own["records"][0]["match"] == "same" and own["memory"]["evidence"] == "measured"
    assert own["memory"]["allocated_peak_bytes"] == dict.fromkeys(("low", "likely", "high"), size)
    row = own["measured"]["allocated_peak_bytes"]
    assert (row["measured"], row["traced"]["likely"]) == (size, 25 * GIB)
    others = [option["memory"] for option in found["options"] if not option.get("records")]
    assert others and all(each["allocated_peak_bytes"]["likely"] == 25 * GIB for each in others)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("tells_time", [True, False])
def test_near_records_narrow_the_time_of_a_traced_option_alone(tells_time: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """What the answer names is what was narrowed. A step of 50 s lies outside of its own bounds and narrows nothing."""
    own = complete(worksheet_from_mapping(sheet(16)))
    step = step_time(own)
    assert step is not None
    name = keep(Path("evidence"), estimate_memory(own).allocated.high, of=sheet(16), seconds=step.seconds.high if tells_time else 50.0)
    plain, found = (planned(capsys, sheet(4), "--trace", *more) for more in ((), ("--evidence", "evidence")))
    before, option = plain["options"][0], found["options"][0]
    assert option["trace"] is not None and option["memory"] == before["memory"] and option["records"] == [{"file": name, "match": "near"}]
    assert (option["step"]["seconds"] != before["step"]["seconds"]) is tells_time
    said = [each["key"] for each in option["assumptions"] if name in each["why"]]
    assert said == (["evidence.compute"] if tells_time else [])
    untraced = sum(each.get("trace") is None for each in found["options"])
    assert found["records"]["used"][0]["narrowed"] == untraced + tells_time * (len(found["options"]) - untraced)


def test_of_a_market_only_the_card_of_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = keep(tmp_path / "evidence", 100 * MIB, of=sheet(4))
    (tmp_path / "machines.toml").write_text(OWN.format("H100-SXM") + OWN.format("A30").replace("box", "other"))
    market = sheet(4)
    del market["machine"]
    found = planned(capsys, market, "--provider", "own", "--evidence", "evidence")
    of = {option["worksheet"]["machine"]["gpu"]: option.get("records") for option in found["options"]}
    assert of["A30"] is None and of["H100-SXM"][0]["file"] == name


def test_measured_links_stand_for_those_of_every_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 GPUs at 1 MB/s: what each option sends takes most of its step."""
    name = save_link(sealed(link_record(link_by_hand(ranks=2, rate=1e6))), str(tmp_path / "evidence"))
    gloo = save_link(sealed(link_record(link_by_hand("cpu", ranks=2))), str(tmp_path / "evidence"))
    plain, found = (planned(capsys, two(4, "fsdp"), *more) for more in ((), ("--evidence", "evidence")))
    before, after = ({each["worksheet"]["layout"]["strategy"]: each["step"] for each in of["options"]} for of in (plain, found))
    assert before.keys() == after.keys() == {"ddp", "fsdp_grad_op", "fsdp"}
    assert all(after[name]["seconds"]["likely"] > 2 * before[name]["seconds"]["likely"] for name in before)
    assert all(option["records"] == [{"file": name, "match": "link"}] for option in found["options"])
    (used,) = found["records"]["used"]
    assert used["linked"] == len(found["options"]) and used["why"] == "links inside a node of 2 x H100-SXM"
    assert found["records"]["refused"][0]["file"] == gloo and "over gloo on processors" in found["records"]["refused"][0]["why"]
    Path("job.json").write_text(json.dumps(two(4)))
    assert main(["estimate", "job.json", "--evidence", "evidence"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"{name} stands for what is assumed: links inside a node of 2 x H100-SXM" in text
    assert {"evidence.link.all_reduce", "evidence.link.send"} <= {each["key"] for each in found["options"][0]["assumptions"]}


def test_records_are_told_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = keep(tmp_path / "evidence", 100 * MIB, of=sheet(16))
    far = keep(tmp_path / "evidence", 100 * MIB, of=sheet(4), device="NVIDIA A30")
    (tmp_path / "evidence" / "bad.json").write_text("[]")
    text = " ".join(plan(capsys, sheet(4), "--evidence", "evidence").split())
    assert f"Records {near} narrows the bounds of " in text and f"Not used {far}: it ran on A30, not on H100-SXM" in text
    assert "Not read bad.json" in text


def test_a_place_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.json").write_text(json.dumps(sheet()))
    assert main(["plan", "job.json", "--evidence", "nowhere"]) == 2
    assert "no such file" in capsys.readouterr().err
