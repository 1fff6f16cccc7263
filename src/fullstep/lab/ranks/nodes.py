"""The machines of an experiment, as the one here sees them: stated on the command line, or told by whatever started it on each of them.

Source:
    torch.distributed.run (GROUP_*, LOCAL_*, MASTER_*), Slurm's srun (SLURM_STEP_*, SLURM_NODEID, SLURM_LOCALID), SkyPilot
    (SKYPILOT_*) and dstack (DSTACK_*): the environment variables that each sets, by its manual
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fullstep.errors import Fault, InputError

PORT = 29_517
"""at which nodes find each other, where nothing else is said: none of torchrun's own"""
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID")
"""the place of this process among those of its node, by torchrun and by srun"""
_MANY = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE")
"""how many processes others started (mpirun, launchers of one process a GPU), of which each would measure by itself"""
_REMEDY = "--nodes N --node-rank R --rendezvous HOST:PORT on every node say it by hand; --nodes 1 is this machine alone."
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9.:_-]+|\[[0-9A-Fa-f:]+\]):(?P<port>[0-9]{1,5})\Z")


class Nodes(NamedTuple):
    """How many there are, and how they find each other."""

    total: int = 1
    rank: int = 0
    """of this one; ranks of the first node come first"""
    host: str = ""
    """the first node's"""
    port: int = PORT
    begins: bool = True
    """this process is the one of its node that begins the experiment; others of a launcher have nothing to do"""

    @property
    def words(self) -> str:
        """Behind what is started; empty on one node."""
        return f" on node {self.rank} of {self.total}, which meet at {self.host}:{self.port}" if self.total > 1 else ""

    @property
    def launcher_words(self) -> list[str]:
        """How torchrun is told of it."""
        if self.total == 1:
            return ["--standalone", "--nnodes=1"]
        return [f"--nnodes={self.total}", f"--node-rank={self.rank}", f"--master-addr={self.host}", f"--master-port={self.port}"]


ONE_NODE = Nodes()


def nodes_of(number: int | None, rank: int | None, rendezvous: str | None, environment: Mapping[str, str] = os.environ) -> Nodes:
    """What was stated; where that is not all, what the launcher says that started this process.

    >>> nodes_of(None, None, None, {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\\n10.0.0.2"})
    Nodes(total=2, rank=1, host='10.0.0.1', port=29517, begins=True)
    >>> nodes_of(2, 1, "10.0.0.1:4000", {})
    Nodes(total=2, rank=1, host='10.0.0.1', port=4000, begins=True)

    Args:
        number: of nodes; None: those that a launcher tells of, else one
        rank: of this node; None: as the launcher says
        rendezvous: host and port of the first node; None: as the launcher says
        environment: of this process

    Raises:
        InputError: they contradict each other, or something is missing
    """
    _require(number, rank, rendezvous)
    begins = all(environment.get(name, "0") == "0" for name in _LOCAL)
    if number == 1:
        return Nodes(begins=begins)
    stated = None if rendezvous is None else _endpoint(rendezvous)
    if number is not None and rank is not None and stated is not None:
        return Nodes(number, rank, *stated, begins)
    told = _told(environment)
    if number is not None and (told is None or told.total != number):
        found = "no launcher tells of nodes" if told is None else f"{number}; the launcher tells of {told.total}"
        raise InputError(Fault("--nodes", found, "--node-rank and --rendezvous beside it", _REMEDY))
    if told is None:
        return Nodes(begins=begins)
    host, port = stated or (told.host, told.port)
    return Nodes(told.total, told.rank if rank is None else rank, host, port, begins)


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what another torchrun told this process, which would contradict what ours tells its own.

    >>> without_launcher({"HOME": "/root", "RANK": "1", "TORCHELASTIC_RUN_ID": "x", "PET_NNODES": "2"})
    {'HOME': '/root'}
    """
    own = re.compile(r"(TORCHELASTIC_|PET_)\w*|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)")
    return {name: value for name, value in environment.items() if not own.fullmatch(name)}


def _require(count: int | None, rank: int | None, rendezvous: str | None) -> None:
    faults = []
    if count is not None and not 1 <= count <= 100_000:
        faults.append(Fault("--nodes", f"found {count}", "1 to 100,000"))
    if rank is not None and not 0 <= rank < (count or 100_000):
        faults.append(Fault("--node-rank", f"found {rank}", f"0 to {count - 1}" if count else "from 0 on"))
    if count in (None, 1) and (rank or rendezvous is not None):
        faults.append(Fault("--node-rank" if rank else "--rendezvous", "without --nodes", "only beside --nodes 2 or more"))
    if faults:
        raise InputError(*faults)


def _endpoint(text: str) -> tuple[str, int]:
    found = _ENDPOINT.match(text)
    if found is None or not 0 < int(found["port"]) < 2**16:
        raise InputError(Fault("--rendezvous", f'"{text[:80]}"', "a host and a port of the first node, like 10.0.0.1:29517"))
    return found["host"].strip("[]"), int(found["port"])


def _told(environment: Mapping[str, str]) -> Nodes | None:
    """By the launcher nearest to this process; None: none, or one node."""
    for name, read in _LAUNCHERS.items():
        if name in environment:
            try:
                total = int(environment[name])
                found = read(environment)._replace(total=total) if total > 1 else None
                if found is not None and not (0 <= found.rank < total and found.host):
                    raise ValueError(f"node {found.rank} of {total}, the first of which is at {found.host!r}")
            except (KeyError, ValueError, IndexError) as error:
                missing = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
                raise InputError(Fault(name, f'"{environment[name][:20]}", and {missing}', "what its launcher sets", _REMEDY)) from None
            return found
    for name in _MANY:
        many = environment.get(name, "")
        if many.isdecimal() and int(many) > 1:
            found_words = f"one of {many} processes, of a launcher that does not say where the first node is"
            raise InputError(Fault(name, found_words, "one process on each node", _REMEDY))
    return None


def _by_torchrun(seen: Mapping[str, str]) -> Nodes:
    """Its own port is in use while it lives."""
    return Nodes(rank=int(seen["GROUP_RANK"]), host=seen["MASTER_ADDR"], port=_next_port(int(seen["MASTER_PORT"])))


def _by_slurm(seen: Mapping[str, str]) -> Nodes:
    """Steps of one user may share a node: a port for each job and step."""
    job, step = int(seen.get("SLURM_JOB_ID", "0")), int(seen.get("SLURM_STEP_ID", "0"))
    return Nodes(rank=int(seen["SLURM_NODEID"]), host=_first_of(seen["SLURM_STEP_NODELIST"]), port=20_000 + (job + step) % 10_000)


def _first_of(hosts: str) -> str:
    """Of Slurm's list of hosts.

    >>> _first_of("node[003-005,8],other"), _first_of("a,b"), _first_of("rack[1-2]n[7,9].example")
    ('node003', 'a', 'rack1n7.example')
    """
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", re.split(r",(?![^\[]*\])", hosts)[0])


def _by_skypilot(seen: Mapping[str, str]) -> Nodes:
    return Nodes(rank=int(seen["SKYPILOT_NODE_RANK"]), host=seen["SKYPILOT_NODE_IPS"].split()[0])


def _by_dstack(seen: Mapping[str, str]) -> Nodes:
    return Nodes(rank=int(seen["DSTACK_NODE_RANK"]), host=seen["DSTACK_MASTER_NODE_IP"])


def _next_port(port: int) -> int:
    return port + 1 if port < 2**16 - 1 else port - 1


_LAUNCHERS: Mapping[str, Callable[[Mapping[str, str]], Nodes]] = {
    "GROUP_WORLD_SIZE": _by_torchrun, "SLURM_STEP_NUM_NODES": _by_slurm, "SKYPILOT_NUM_NODES": _by_skypilot, "DSTACK_NODES_NUM": _by_dstack,
}  # fmt: skip
"""the variable that says how many nodes there are, and how the others are read"""
