"""Which nodes take part, by the command line and by what launchers set on each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullstep.errors import InputError
from fullstep.lab.ranks.nodes import ONE_NODE, Nodes, nodes_of
from fullstep.lab.ranks.tree import command

TORCHRUN = {"GROUP_WORLD_SIZE": "2", "GROUP_RANK": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "a.example", "MASTER_PORT": "29500"}
SLURM = {
    "SLURM_STEP_NUM_NODES": "3", "SLURM_NODEID": "2", "SLURM_STEP_NODELIST": "node[3-5]", "SLURM_JOB_ID": "1234567", "SLURM_STEP_ID": "1",
}  # fmt: skip
SKYPILOT = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n"}
DSTACK = {"DSTACK_NODES_NUM": "2", "DSTACK_NODE_RANK": "1", "DSTACK_MASTER_NODE_IP": "10.1.0.1"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, Nodes(2, 1, "a.example", 29501)),
        (SLURM, Nodes(3, 2, "node3", 20_000 + 1234568 % 10_000)),
        (SKYPILOT, Nodes(2, 0, "10.0.0.1", 29517)),
        (DSTACK, Nodes(2, 1, "10.1.0.1", 29517)),
    ],
)
def test_launchers_say_it_all(environment: dict[str, str], expected: Nodes) -> None:
    assert nodes_of(None, None, None, environment) == expected
    assert nodes_of(expected.total, None, None, environment) == expected


@pytest.mark.parametrize("environment", [TORCHRUN | {"LOCAL_RANK": "3"}, SLURM | {"SLURM_LOCALID": "7"}, {"LOCAL_RANK": "1"}])
def test_of_several_processes_of_a_node_one_begins(environment: dict[str, str]) -> None:
    assert not nodes_of(None, None, None, environment).begins


def test_one_node_of_a_launcher_is_this_machine_alone() -> None:
    assert nodes_of(None, None, None, TORCHRUN | {"GROUP_WORLD_SIZE": "1"}) == ONE_NODE
    assert nodes_of(1, None, None, TORCHRUN) == ONE_NODE


def test_the_batch_script_of_a_job_is_no_step_on_all_nodes() -> None:
    assert nodes_of(None, None, None, {"SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "0", "SLURM_JOB_ID": "1"}) == ONE_NODE


def test_what_is_stated_outranks_a_launcher() -> None:
    assert nodes_of(2, 0, "b.example:4000", TORCHRUN) == Nodes(2, 0, "b.example", 4000)
    assert nodes_of(4, 3, "[fd00::1]:4000", TORCHRUN) == Nodes(4, 3, "fd00::1", 4000)


@pytest.mark.parametrize(
    ("stated", "environment", "message"),
    [
        ((2, None, None), {}, "--nodes: no launcher tells of nodes; allowed: --node-rank and --rendezvous beside it"),
        ((4, None, None), SKYPILOT, "--nodes: 4; the launcher tells of 2"),
        ((2, 2, "a:1"), {}, "--node-rank: found 2; allowed: 0 to 1"),
        ((0, None, None), {}, "--nodes: found 0"),
        ((None, 1, None), {}, "--node-rank: without --nodes"),
        ((None, None, "a:1"), {}, "--rendezvous: without --nodes"),
        ((2, 1, "nowhere"), {}, '--rendezvous: "nowhere"; allowed: a host and a port'),
        ((2, 1, "a:70000"), {}, '--rendezvous: "a:70000"'),
        ((2, 1, "--help:80; rm -rf:80"), {}, "--rendezvous"),
        ((None, None, None), {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}, "SKYPILOT_NODE_IPS is missing"),
        ((None, None, None), {"DSTACK_NODES_NUM": "two"}, 'DSTACK_NODES_NUM: "two"'),
        ((None, None, None), DSTACK | {"DSTACK_NODE_RANK": "5"}, "node 5 of 2"),
        ((None, None, None), DSTACK | {"DSTACK_MASTER_NODE_IP": ""}, "the first of which is at ''"),
        ((None, None, None), {"OMPI_COMM_WORLD_SIZE": "16"}, "one of 16 processes"),
        ((None, None, None), {"PMI_SIZE": "16"}, "one of 16 processes"),
        ((None, None, None), {"WORLD_SIZE": "4", "RANK": "2", "MASTER_ADDR": "a"}, "WORLD_SIZE: one of 4 processes"),
    ],
)
def test_what_is_missing_is_asked_for(stated: tuple[int | None, int | None, str | None], environment: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        nodes_of(*stated, environment)
    assert message in str(caught.value)


@pytest.mark.parametrize("environment", [{"DSTACK_NODES_NUM": "two"}, {"OMPI_COMM_WORLD_SIZE": "16"}, SLURM | {"SLURM_STEP_NODELIST": ""}])
def test_what_is_told_to_do_works(environment: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"--nodes N --node-rank R --rendezvous HOST:PORT .* --nodes 1 is this machine"):
        nodes_of(None, None, None, environment)
    assert nodes_of(1, None, None, environment) == ONE_NODE
    assert nodes_of(2, 1, "a:4000", environment) == Nodes(2, 1, "a", 4000)


def test_torchrun_of_one_node_has_processes_and_no_other_nodes() -> None:
    assert nodes_of(None, None, None, TORCHRUN | {"GROUP_WORLD_SIZE": "1", "WORLD_SIZE": "8"}) == ONE_NODE


def test_torchrun_is_told_of_them() -> None:
    words = command(8, "worker", Path("task.json"), Nodes(2, 1, "10.0.0.1", 4000))
    assert words[3:] == [
        "--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=4000", "--nproc-per-node=8", "--max-restarts=0",
        "-m", "worker", "task.json",
    ]  # fmt: skip
    assert "--standalone" in command(8, "worker", Path("task.json"))
