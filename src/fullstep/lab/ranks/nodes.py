"""The machines of an experiment, as the one here sees them: stated on the command line, or told by whatever started it on each of them.

Source:
    torch.distributed.run (GROUP_*, LOCAL_*, MASTER_*), Slurm's srun (SLURM_STEP_*, SLURM_NODEID, SLURM_LOCALID), SkyPilot
    (SKYPILOT_*) and dstack (DSTACK_*): the environment variables that each sets, by its manual
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fullstep.errors import Fault, InputError

PORT = 29_517
"""at which nodes find each other, where nothing else is said: none of torchrun's own"""
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID")
"""the place of this process among those of its node, by torchrun and by srun"""
_WITHOUT_ADDRESS = "OMPI_COMM_WORLD_SIZE"
_ASK_SECONDS = 10
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


def nodes_of(
    count: int | None, rank: int | None, rendezvous: str | None,
    environment: Mapping[str, str] = os.environ, first_host: Callable[[str], str] | None = None,
) -> Nodes:  # fmt: skip
    """What was stated; where that is not all, what the launcher says that started this process.

    >>> nodes_of(None, None, None, {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\\n10.0.0.2"})
    Nodes(total=2, rank=1, host='10.0.0.1', port=29517, begins=True)
    >>> nodes_of(2, 1, "10.0.0.1:4000", {})
    Nodes(total=2, rank=1, host='10.0.0.1', port=4000, begins=True)

    Args:
        count: of nodes; None: those that a launcher tells of, else one
        rank: of this node; None: as the launcher says
        rendezvous: host and port of the first node; None: as the launcher says
        environment: of this process
        first_host: the first of Slurm's list of hosts; None: by ``scontrol``

    Raises:
        InputError: they contradict each other, or something is missing
    """
    _require(count, rank, rendezvous)
    told = _told(environment, first_host or _first_of_slurm)
    if count == 1 or (count is None and told is None):
        _refuse_many(count, environment)
        return Nodes(begins=count == 1 or _begins(environment))
    stated = None if rendezvous is None else _endpoint(rendezvous)
    if told is None or (count is not None and told.total != count):
        if stated is None or rank is None or count is None:
            found = "no launcher tells of nodes" if told is None else f"{count}; the launcher tells of {told.total}"
            raise InputError(Fault("--nodes", found, "--node-rank and --rendezvous beside it", _REMEDY))
        told = Nodes(count)
    host, port = stated or (told.host, told.port)
    return Nodes(told.total, told.rank if rank is None else rank, host, port, _begins(environment))


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


def _told(environment: Mapping[str, str], first_host: Callable[[str], str]) -> Nodes | None:
    """By the launcher nearest to this process; None: none, or one node."""
    for count, read in (
        ("GROUP_WORLD_SIZE", _by_torchrun), ("SLURM_STEP_NUM_NODES", lambda seen: _by_slurm(seen, first_host)),
        ("SKYPILOT_NUM_NODES", _by_skypilot), ("DSTACK_NODES_NUM", _by_dstack),
    ):  # fmt: skip
        if count in environment:
            try:
                nodes = int(environment[count])
                return read(environment)._replace(total=nodes) if nodes > 1 else None
            except (KeyError, ValueError, IndexError) as error:
                missing = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
                raise InputError(Fault(count, f'"{environment[count][:20]}", and {missing}', "what its launcher sets", _REMEDY)) from None
    return None


def _by_torchrun(seen: Mapping[str, str]) -> Nodes:
    """Its own port is in use while it lives."""
    return Nodes(rank=int(seen["GROUP_RANK"]), host=seen["MASTER_ADDR"], port=_next_port(int(seen["MASTER_PORT"])))


def _by_slurm(seen: Mapping[str, str], first_host: Callable[[str], str]) -> Nodes:
    """Steps of one user may share a node: a port for each job and step."""
    job, step = int(seen.get("SLURM_JOB_ID", "0")), int(seen.get("SLURM_STEP_ID", "0"))
    return Nodes(rank=int(seen["SLURM_NODEID"]), host=first_host(seen["SLURM_STEP_NODELIST"]), port=20_000 + (job + step) % 10_000)


def _by_skypilot(seen: Mapping[str, str]) -> Nodes:
    return Nodes(rank=int(seen["SKYPILOT_NODE_RANK"]), host=seen["SKYPILOT_NODE_IPS"].split()[0])


def _by_dstack(seen: Mapping[str, str]) -> Nodes:
    return Nodes(rank=int(seen["DSTACK_NODE_RANK"]), host=seen["DSTACK_MASTER_NODE_IP"])


def _next_port(port: int) -> int:
    return port + 1 if port < 2**16 - 1 else port - 1


def _begins(environment: Mapping[str, str]) -> bool:
    return all(environment.get(name, "0") == "0" for name in _LOCAL)


def _refuse_many(count: int | None, environment: Mapping[str, str]) -> None:
    """A launcher that started many processes and does not say where the first one is."""
    many = environment.get(_WITHOUT_ADDRESS, "")
    if count is None and many.isdecimal() and int(many) > 1:
        raise InputError(Fault(_WITHOUT_ADDRESS, f"one of {many} processes of mpirun", "one process on each node", _REMEDY))


def _first_of_slurm(hosts: str) -> str:
    """Of a list like ``node[3-5,8]``."""
    if re.fullmatch(r"[A-Za-z0-9._-]+", hosts):
        return hosts
    try:
        done = subprocess.run(["scontrol", "show", "hostnames", hosts], capture_output=True, text=True, check=True, timeout=_ASK_SECONDS)
        return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        raise ValueError("scontrol does not tell the first of its hosts") from None
