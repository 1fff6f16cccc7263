"""Whatever ranks do, it is said what it was, and nothing of them is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fullstep.errors import FullstepError, LabError, UnsupportedError
from fullstep.lab.ranks import tree
from fullstep.lab.ranks.nodes import ONE_NODE, Nodes
from fullstep.lab.ranks.tree import RanksFailedError, Tree


@pytest.fixture(autouse=True)
def _fake_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(ranks: int, worker: str, task: Path, nodes: Nodes) -> Sequence[str]:
        return [sys.executable, str(Path(__file__).with_name("fake_ranks.py")), task.name]

    monkeypatch.setattr(tree, "command", command)


def started(name: str, ranks: int, behaviour: Path, nodes: Nodes = ONE_NODE) -> AbstractContextManager[Tree]:
    return tree.started(f'leg "{name}"', ranks, "no.module", behaviour, {}, nodes=nodes)


def left_behind(found: Tree) -> list[int]:
    return sorted(found.family.left())


@pytest.mark.parametrize(
    ("behaviour", "kind", "message"),
    [
        ("half", LabError, r'leg "saving" ended before its work was done \(exit code 3\); last stage: "training"'),
        ("killed", LabError, r'rank 1 of leg "saving" was killed by SIGKILL; last stage: "training as well". The system kills what takes'),
        ("babbles", LabError, "said something that is no message: 'hello'"),
        ("hangs", LabError, 'leg "saving" said nothing for 1 s and was stopped; last stage: "training". .*--silent-seconds'),
        ("crashes", LabError, 'rank 1 of leg "saving" stopped: ValueError: no'),
        ("faults", UnsupportedError, "method.kind: refused; allowed: full"),
        ("failed", RanksFailedError, "the checkpoint is damaged"),
        ("loses its launcher", LabError, 'lost its launcher, which was killed by SIGKILL; last stage: "training"$'),
    ],
)
def test_what_goes_wrong_is_said_and_nothing_is_left(behaviour: str, kind: type[FullstepError], message: str) -> None:
    with pytest.raises(kind, match=message), started("saving", 2, Path(behaviour)) as found:
        found.wait_for_ranks(1.0, lambda _: None)
    assert left_behind(found) == []


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("alone", r"said nothing for 3 s.*Other nodes have not come to 10\.0\.0\.1:4000: was the same command started on all 2"),
        ("port in use", r"cannot use port 4000 of 10\.0\.0\.1, which is in use.*--rendezvous names another"),
    ],
)
def test_of_several_nodes_it_is_said_why_they_did_not_meet(behaviour: str, message: str) -> None:
    nodes = Nodes(2, 0, "10.0.0.1", 4000)
    with pytest.raises(LabError, match=message), started("saving", 2, Path(behaviour), nodes) as found:
        found.wait_for_ranks(3.0, lambda _: None)
    assert left_behind(found) == []


def test_on_another_node_its_own_first_rank_tells_the_stage() -> None:
    stages: list[str] = []
    with started("saving", 2, Path("second node"), Nodes(2, 1, "10.0.0.1", 4000)) as found:
        found.wait_for_ranks(30.0, stages.append)
        found.wait_for_end()
    assert stages == ["training on the second node"]


def test_stages_are_told_and_a_good_end_is_waited_for() -> None:
    stages: list[str] = []
    with started("saving", 2, Path("good")) as found:
        found.wait_for_ranks(30.0, stages.append)
        found.wait_for_end()
    assert stages == ["training"]


def test_ranks_that_wait_for_one_that_ended_early_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_ACCOUNT_SECONDS", 0.5)
    with started("saving", 2, Path("early")) as found:
        found.wait_for_ranks(600.0, lambda _: None)
        assert found.ended_early
    assert left_behind(found) == []


def test_what_does_not_end_by_itself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_END_SECONDS", 0.2)
    with pytest.raises(LabError, match=r"did not end within 0\.2 s"), started("saving", 2, Path("never ends")) as found:
        found.wait_for_ranks(30.0, lambda _: None)
        found.wait_for_end()
    assert left_behind(found) == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not say which processes belong together")
def test_a_kill_reaches_savers_in_sessions_of_their_own() -> None:
    with started("saving", 2, Path("saver")) as found:
        found.wait_for_ranks(30.0, lambda _: None)
        assert len(left_behind(found)) == 2
        seconds = found.family.kill()
        assert left_behind(found) == []
        assert 0 < seconds < 20


def test_the_environment_of_a_leg_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two drills at once do not kill one another's processes."""
    with started("one", 2, Path("hangs")) as one, started("two", 2, Path("hangs")) as two:
        until = time.monotonic() + 20
        while not (left_behind(one) and left_behind(two)) and time.monotonic() < until:
            time.sleep(0.05)
        one.family.kill()
        assert left_behind(two) != []
    assert left_behind(two) == []
