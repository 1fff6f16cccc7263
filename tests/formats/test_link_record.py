"""A record of links from outside: what is written is read again; anything else is refused, and said where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from links_by_hand import link_by_hand, link_record
from probes_by_hand import probe_by_hand

from fullstep.errors import InputError
from fullstep.formats.probe_record import probe_from_bytes, read_all, read_any, record_from_bytes, save, save_link, sealed


def read(record: dict[str, Any], seal: bool = True) -> object:
    return record_from_bytes(json.dumps(sealed(record) if seal else record).encode(), "a.json")


@pytest.mark.parametrize(
    "changes",
    [{}, {"ranks": 16, "nodes": 2, "network_gbit_s": 400.0}, {"missing": {"send": "nobody has it"}, "settings": {"NCCL_ALGO": "Ring"}}],
)
def test_what_is_written_is_read_again(changes: dict[str, Any]) -> None:
    link = link_by_hand(**changes)
    assert read(link_record(link)) == link


def test_it_lies_beside_records_of_probes_and_is_not_written_twice(tmp_path: Path) -> None:
    probe, record = save(probe_by_hand(), str(tmp_path)), sealed(link_record(link_by_hand()))
    name = save_link(record, str(tmp_path))
    assert name == save_link(record, str(tmp_path)) and name.startswith("20260101-000000-link-8x-nvidia-h100-80gb-hbm3-")
    stored = {each.name: each for each in read_all(str(tmp_path))}
    assert stored[name].link == link_by_hand() == read_any(str(tmp_path / name)).link
    assert stored[name].probe is None and stored[name].is_sound
    assert stored[probe].probe == probe_by_hand() == read_any(str(tmp_path / probe)).probe and stored[probe].link is None
    with pytest.raises(InputError, match='kind: "fullstep link"; allowed: "fullstep probe"'):
        probe_from_bytes((tmp_path / name).read_bytes(), name)


def change(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(record: dict[str, Any]) -> None:
        place: Any = record
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (change("schema", to=2), "a.json: schema: 2; allowed: 1. A newer fullstep made it"),
        (change("environment", "backend", to="mpi"), r'environment.backend: "mpi"; allowed: gloo, nccl'),
        (change("environment", "nodes", to=3), "environment.nodes: 3 of 8 ranks; allowed: equally many"),
        (change("environment", "ranks", to=True), "environment.ranks: true"),
        (change("environment", "network_gbit_s", to=0), "environment.network_gbit_s: 0"),
        (change("samples", 0, "collective", to="broadcast"), r"samples\[0\].collective"),
        (change("samples", 0, "seconds", to=[]), "samples: a size without a call"),
        (change("samples", 0, "seconds", 0, to=-1.0), r"samples\[0\].seconds\[0\]: -1"),
        (change("samples", 0, "seconds", 0, to=10**400), r"samples\[0\].seconds\[0\]: a number of more than 40 digits"),
        (change("samples", 1, "size_bytes", to=4096), "sizes of all_reduce twice, or not in their order"),
        (change("samples", 2, "seconds", to=[1.0, 1.0]), 'summary, sizes of "all_reduce": other figures than its samples come to'),
        (change("summary", 0, "fit", "bytes_per_second", to=9e11), 'summary, fit of "all_reduce"'),
        (change("summary", to=[[]]), r"summary\[0\]: a list of 0"),
        (change("more", to=1), 'an unknown key: "more"'),
        (change("made", to="yesterday"), 'made: "yesterday"'),
        (change("made", to="2026-02-30T00:00:00+00:00"), 'made: "2026-02-30T00:00:00.00:00"; allowed: a day and a time that there are'),
    ],
)
def test_what_is_not_allowed_says_where(spoil: Callable[[dict[str, Any]], None], said: str) -> None:
    record = json.loads(json.dumps(link_record(link_by_hand())))
    spoil(record)
    with pytest.raises(InputError, match=said):
        read(record)


def test_a_record_without_digest_or_that_was_changed() -> None:
    with pytest.raises(InputError, match="sha256: not there"):
        read(link_record(link_by_hand()), seal=False)
    record = {**sealed(link_record(link_by_hand())), "notes": ["more"]}
    with pytest.raises(InputError, match=r"sha256: not the digest of what the file holds.*It was changed"):
        read(record, seal=False)
    with pytest.raises(InputError, match="a table whose kind"):
        probe_from_bytes(b"[]", "a.json")


def test_nothing_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not written, since it could not be read again"):
        save_link(sealed({**link_record(link_by_hand()), "seconds": -1}), str(tmp_path))
    assert not list(tmp_path.iterdir())
