"""``fullstep evidence`` by way of ``main``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from probes_by_hand import probe_by_hand, ran_out_by_hand, rank_by_hand

from fullstep.cli import main
from fullstep.formats.probe_record import save, save_link, sealed
from fullstep.ledger.link import LinkSample, MeasuredLink
from fullstep.report.link_json import link_as_dict


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["evidence", *words]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.out + captured.err


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    """Two records and a file that is none."""
    save(probe_by_hand(), str(tmp_path))
    save(ran_out_by_hand(), str(tmp_path))
    (tmp_path / "zzz.json").write_text('{"kind": "a receipt\\u001b[31m"}')
    return tmp_path


def test_list_tells_what_is_there_and_what_could_not_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "list", str(folder))
    assert text.startswith(f"2 records in {folder}")
    assert "meta-llama/Llama-3.1-8B · 2 x cuda:0, cuda:1" in text
    assert "6.9 KiB" in text and "8.8 KiB" in text and "11.7 KiB" in text and "3 s" in text  # 7100, 9000, 12000 bytes; median of 2 and 4 s
    assert "out of memory" in text and "completed" in text
    assert "ddp · lora · 1 x " in text  # of the worksheet, defaults filled in
    assert 'not read: zzz.json: kind: "a receipt\\x1b[31m"' in text and "\x1b" not in text


def test_list_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "list", str(folder), "--json"))
    assert sorted(each["outcome"] for each in found["records"]) == ["completed", "out_of_memory"]
    assert found["unreadable"][0]["file"] == "zzz.json" and found["unreadable"][0]["faults"][0]["where"] == "zzz.json: kind"


def test_two_records_figure_by_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second has 710 bytes more than 7100 in backward: 10 %."""
    first = save(probe_by_hand(), str(tmp_path))
    changed = probe_by_hand(ranks=(rank_by_hand(0), rank_by_hand(1, 810)), environment={"torch": "2.14.0", "gpu": "NVIDIA H100 80GB HBM3"})
    second = save(changed, str(tmp_path))
    words = ("compare", str(tmp_path / first), str(tmp_path / second))
    text = run(capsys, *words)
    backward = next(line for line in text.splitlines() if line.strip().startswith("backward"))
    assert backward.split() == ["backward", "6.9", "KiB", "7.6", "KiB", "+10.0", "%"]
    assert "torch: 2.13.0 in A, 2.14.0 in B" in text
    figures = json.loads(run(capsys, *words, "--json"))["figures"]
    allocated = next(each for each in figures if each["what"] == "allocated")
    assert (allocated["first"], allocated["second"], allocated["unit"]) == (7100, 7810, "bytes")
    assert allocated["second_over_first_less_one"] == pytest.approx(0.1)


def test_a_figure_that_one_of_them_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = save(probe_by_hand(), str(tmp_path)), save(ran_out_by_hand(), str(tmp_path))
    text = run(capsys, "compare", str(tmp_path / first), str(tmp_path / second))
    line = next(line for line in text.splitlines() if "memory ran out" in line)
    assert line.split()[-3:] == ["–", "1.0", "KiB"]  # 700 + 300 bytes
    assert "outcome: completed in A, out of memory in B" in text


def test_what_is_no_result_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times of day are different between any two records; shares of waiting lie in points apart: 1 of 6 s and 0.1 of 6 s."""
    first, second = probe_by_hand(environment={"began": "1"}), probe_by_hand(environment={"began": "2"}, made="2026-02-01T00:00:00Z")
    quick = tuple(replace(rank, steps=tuple(each._replace(data_seconds=0.05) for each in rank.steps)) for rank in second.ranks)
    names = [save(each, str(tmp_path)) for each in (first, replace(second, ranks=quick))]
    text = run(capsys, "compare", *(str(tmp_path / name) for name in names))
    assert "began" not in text and "nothing: the same was run in the same environment" in text
    waiting = next(line for line in text.splitlines() if "waiting for data" in line)
    assert waiting.split()[3:] == ["16.7", "%", "1.7", "%", "-15", "points"]


LINK = MeasuredLink(
    made="2026-01-01T00:00:00+00:00", device="NVIDIA H100 80GB HBM3", backend="nccl", ranks=4, processors=96, iterations=2, warm_up=5,
    samples=(LinkSample("all_gather", 4096, 4, (50e-6, 50e-6)), LinkSample("all_gather", 2**30, 4, (3e-3, 3e-3))), seconds=1.0,
)  # fmt: skip


def test_records_of_links_stand_beside_those_of_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """3/4 of 2^30 - 2^12 bytes in 2.95 ms are 273 GB/s."""
    probe, link = save(probe_by_hand(), str(tmp_path)), save_link(sealed(link_as_dict(LINK, (), "", [])), str(tmp_path))
    assert link.startswith("20260101-000000-link-4x-nvidia-h100-80gb-hbm3-")
    text = run(capsys, "list", str(tmp_path))
    assert "links of 4 x NVIDIA H100 80GB HBM3 · nccl inside a node" in text and "all_gather 50.0 us, 273 GB/s" in text
    assert "2 of 2 are sound records" in run(capsys, "validate", str(tmp_path))
    assert [each["kind"] for each in json.loads(run(capsys, "list", str(tmp_path), "--json"))["records"]] == [
        "fullstep link",
        "fullstep probe",
    ]
    beside = run(capsys, "compare", str(tmp_path / link))
    assert "Assumed of" in beside and "4 x H100-SXM by nvswitch" in beside
    slower = replace(LINK, samples=(LINK.samples[0], replace_seconds(LINK.samples[1], 6e-3)), versions={"nccl": "2.29"})
    other = save_link(sealed(link_as_dict(slower, (), "", [])), str(tmp_path))
    text = run(capsys, "compare", str(tmp_path / link), str(tmp_path / other))
    (row,) = (line for line in text.splitlines() if line.split()[:2] == ["1", "GiB"])
    assert row.split()[2:] == ["3.00", "ms", "6.00", "ms", "+100.0", "%"]
    assert "nccl: – in A, 2.29 in B" in text
    assert "two of one kind" in run(capsys, "compare", str(tmp_path / link), str(tmp_path / probe), code=2)


def replace_seconds(sample: LinkSample, seconds: float) -> LinkSample:
    return sample._replace(seconds=(seconds, seconds))


def test_what_left_no_record_and_notes_of_several_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a command it is not known how many ranks there were."""
    nothing = replace(probe_by_hand(), model="gpt2", outcome="rank_died", reason="killed", ranks=())
    for probe in (replace(nothing, worksheet=None, world_size=1, model="train.py"), nothing, replace(nothing, world_size=1)):
        save(probe, str(tmp_path))
    text = run(capsys, "list", str(tmp_path))
    assert "train.py · no optimizer step was seen" in text
    assert "· 2 ranks, none left a record" in text and "· 1 rank, which left no record" in text
    noted = replace(LINK, notes=("NCCL said:\nring 0\x1b[31m\nring 1",))
    link = save_link(sealed(link_as_dict(noted, (), "", [])), str(tmp_path))
    assert "  Notes          NCCL said:\n    | ring 0\\x1b[31m\n    | ring 1\n" in run(capsys, "compare", str(tmp_path / link))


def test_validate_says_what_is_wrong_and_returns_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "validate", str(folder), str(folder / "nowhere"), code=2)
    assert text.count("  ok   ") == 2 and text.count("  BAD  ") == 2 and "2 of 4 are sound records" in text
    (folder / "zzz.json").unlink()
    assert "2 of 2 are sound records" in run(capsys, "validate", str(folder))
    assert json.loads(run(capsys, "validate", str(folder), "--json"))["are_all_sound"] is True


def test_an_empty_folder_holds_no_sound_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "validate", str(tmp_path), code=2)
    assert run(capsys, "list", str(tmp_path)).startswith("0 records")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no action"),
        (("lst", "a"), 'Did you mean "list"?'),
        (("list",), "fullstep evidence list WHERE"),
        (("compare", "a", "b", "c"), "fullstep evidence compare A [B]"),
        (("list", "a", "--trace"), "fullstep evidence compare A --trace"),
        (("list", "no/such/folder"), "there is no such file or folder"),
    ],
)
def test_what_the_command_line_may_not_say(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in run(capsys, *words, code=2)
