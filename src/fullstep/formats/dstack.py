"""Configurations for dstack: a fleet, a task, and the volume of its checkpoints where a provider and region are chosen.

Source:
    dstack 0.22.5: core/models (keys), core/backends/*/compute.py (which backends join nodes, which have volumes)
"""

from __future__ import annotations

import re
import shlex
from math import ceil
from typing import Any, NamedTuple

from fullstep import __version__
from fullstep.errors import Fault, InputError
from fullstep.formats.card_names import dstack_gpu
from fullstep.formats.launch import Launch, LaunchFile
from fullstep.formats.shell import comments, head, probe_script, tail, training_script
from fullstep.formats.yaml_text import Script, yaml_text

BACKENDS = (
    "amddevcloud", "aws", "azure", "cloudrift", "crusoe", "cudo", "digitalocean", "gcp", "hotaisle", "jarvislabs", "kubernetes", "lambda",
    "lium", "nebius", "oci", "runpod", "seeweb", "slurm", "tensordock", "vastai", "verda", "vultr",
)  # fmt: skip
_ALSO_CALLED = {"do": "digitalocean", "vast": "vastai", "datacrunch": "verda", "amd": "amddevcloud"}
_JOIN_NODES = frozenset((
    "aws", "azure", "crusoe", "gcp", "jarvislabs", "kubernetes", "nebius", "oci", "runpod", "seeweb", "slurm", "vultr",
))  # fmt: skip
_VOLUMES = frozenset(("aws", "gcp", "kubernetes", "lium", "runpod"))
_SHARED_VOLUMES = frozenset(("kubernetes", "runpod"))
"""whose volumes several nodes mount at once; a disk of the others belongs to one node"""
_REGIONAL_VOLUMES = frozenset(("aws", "gcp", "runpod"))
"""whose volumes are made of a region and a size"""
RETRY_HOURS = 24
"""for which dstack looks for capacity again (assumed)"""
_MOUNT = "/checkpoints"
_VOLUME_NAME = re.compile(r"[a-z][a-z0-9-]{1,40}\Z")


class _Storage(NamedTuple):
    """Where checkpoints go: what the task mounts, the volume to be made first, and what the file says about it."""

    mounts: list[str]
    volume: dict[str, Any] | None
    said: list[str]


def dstack_files(launch: Launch) -> tuple[LaunchFile, ...]:
    """Two or three files, which dstack applies one after the other.

    Raises:
        InputError: dstack does not know the card or the backend, or the backend does not do what is asked for
    """
    backend = _backend(launch)
    resources: dict[str, Any] = {"gpu": dstack_gpu(launch.card, launch.gpus), "disk": f"{launch.disk_gb}GB.."}
    if launch.host_gib is not None:
        resources["memory"] = f"{launch.host_gib}GB.."
    storage = _storage(launch, backend)
    place: dict[str, Any] = {} if backend is None else {"backends": [backend]}
    place |= {"regions": [launch.region]} if launch.region else {}
    place |= {"instance_types": [launch.instance]} if launch.instance else {}
    place["spot_policy"] = "spot" if launch.interruptible else "on-demand"
    place |= {"max_price": float(launch.price_per_hour)} if launch.price_per_hour else {}
    documents = {
        **({} if storage.volume is None else {"volume": storage.volume}),
        "fleet": _fleet(launch, resources, place),
        "task": _task(launch, resources, place, storage),
    }
    names = {kind: f"{launch.name}.{kind}.dstack.yml" for kind in documents}
    start = ["Start, in this order: " + ", ".join(f"dstack apply -f {name}" for name in names.values()),
             "The folder of these files goes along (files); a large one is better named as a repository (repos)."]  # fmt: skip
    short = comments([f"{launch.name}, written by fullstep {__version__}", *start]) + "\n"
    texts = {kind: short + yaml_text(document) for kind, document in documents.items()}
    texts["task"] = head(launch, start) + comments(storage.said) + "\n" + yaml_text(documents["task"]) + tail(launch)
    return tuple(LaunchFile(names[kind], text, loses_checkpoints=not storage.mounts) for kind, text in texts.items())


def _backend(launch: Launch) -> str | None:
    if launch.provider is None:
        return None
    backend = _ALSO_CALLED.get(launch.provider, launch.provider)
    if backend not in BACKENDS:
        raise InputError(Fault("--provider", f"{launch.provider}, which dstack does not know", ", ".join(BACKENDS)))
    if launch.nodes > 1 and backend not in _JOIN_NODES:
        raise InputError(Fault("machine.nodes", f"{launch.nodes}; dstack joins no nodes at {backend}", ", ".join(sorted(_JOIN_NODES))))
    if launch.interruptible and backend == "vastai":
        raise InputError(Fault("--interruptible", "dstack takes no interruptible offers of vastai", "another provider, or on-demand"))
    return backend


def _fleet(launch: Launch, resources: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    fleet: dict[str, Any] = {"type": "fleet", "name": f"{launch.name}-fleet", "nodes": f"0..{launch.nodes}"}
    if launch.nodes > 1:
        fleet["placement"] = "cluster"
    return {**fleet, "resources": dict(resources), **place, "idle_duration": "5m"}


def _task(launch: Launch, resources: dict[str, Any], place: dict[str, Any], storage: _Storage) -> dict[str, Any]:
    task: dict[str, Any] = {"type": "task", "name": launch.name, "fleets": [f"{launch.name}-fleet"]}
    if launch.nodes > 1:
        task["nodes"] = launch.nodes
    folder = shlex.quote(f"{_MOUNT}/{launch.name}")
    if launch.probe is None:
        script = training_script(
            launch, checkpoint_dir=folder, node="$DSTACK_NODE_RANK", rendezvous=_rendezvous(launch), first=launch.setup
        )
    else:
        script = probe_script(launch, folder=folder, first=launch.setup)
    task |= {"files": [".:/workflow"], "working_dir": "/workflow", "shell": "bash"}
    indented = "".join(f"  {line}".rstrip() + "\n" for line in script.splitlines())
    task["commands"] = [Script(f"{{\n{indented}}}\n")]
    if storage.mounts:
        task["volumes"] = storage.mounts
    shared = {} if launch.gpus == 1 else {"shm_size": f"{_shared_gb(launch.gpus)}GB"}
    task |= {"resources": {**resources, **shared}, **place}
    if launch.max_hours is not None:
        task["max_duration"] = f"{ceil(launch.max_hours * 60)}m"
    if launch.interruptible:
        task["retry"] = {"on_events": ["no-capacity", "interruption"], "duration": f"{RETRY_HOURS}h"}
    return task


def _shared_gb(gpus: int) -> int:
    """Shared memory for data loaders and NCCL: 4 GB a GPU (assumed), which containers would limit to 64 MB."""
    return 4 * gpus


def _storage(launch: Launch, backend: str | None) -> _Storage:
    name = launch.checkpoints
    if name is not None and name.startswith("/"):
        outlives = "Checkpoints: a folder of the machine itself. It has to be storage that outlives it, and that all nodes share."
        if not _is_mount_path(name):
            raise InputError(Fault("--checkpoints", f'"{name[:60]}"', "an absolute path without colons and dots in a row"))
        return _Storage([f"{name}:{_MOUNT}"], None, [outlives])
    one_node = backend in _VOLUMES and backend not in _SHARED_VOLUMES and launch.nodes > 1
    if backend is not None and (backend not in _VOLUMES or one_node):
        why = f"a volume of {backend} belongs to one node" if one_node else f"dstack has no volumes at {backend}"
        if name is not None:
            raise InputError(Fault("--checkpoints", why, "an absolute path of storage that all nodes share, or none"))
        lost = "Checkpoints are lost with the machine: name storage that is mounted on it by --checkpoints /path, or copy them elsewhere."
        return _Storage([], None, [f"Checkpoints: {why}. {lost}"])
    name = f"{launch.name}-disk" if name is None else name
    if not _VOLUME_NAME.match(name):
        allowed = "a volume's name (2 to 41 lower-case letters, digits and hyphens, a letter first) or an absolute path"
        raise InputError(Fault("--checkpoints", f'"{name[:60]}"', allowed, "dstack mounts no buckets."))
    said = [f"Checkpoints: the volume {name}, which keeps what is on it, and costs, until it is deleted. It is bound to its region."]
    volume = _volume(launch, backend, name)
    if volume is None:
        said.append("It has to be made first, where the run will be: dstack apply on a configuration of the type volume.")
    return _Storage([f"{name}:{_MOUNT}"], volume, said)


def _is_mount_path(path: str) -> bool:
    return ":" not in path and ".." not in path.split("/")


def _volume(launch: Launch, backend: str | None, name: str) -> dict[str, Any] | None:
    """The volume's configuration; None: a provider or its region is not chosen."""
    size = f"{launch.checkpoints_gb}GB"
    volume: dict[str, Any] = {"type": "volume", "name": name, "backend": backend, "size": size}
    if launch.region:
        volume["region"] = launch.region
    if backend == "kubernetes":
        return volume | ({"access_modes": ["ReadWriteMany"]} if launch.nodes > 1 else {})
    return volume if backend in _REGIONAL_VOLUMES and launch.region else None


def _rendezvous(launch: Launch) -> list[str]:
    meets = "--nnodes=1 --standalone"
    if launch.nodes > 1:
        meets = '--nnodes="$DSTACK_NODES_NUM" --node-rank="$DSTACK_NODE_RANK" --master-addr="$DSTACK_MASTER_NODE_IP" --master-port="$port"'
    return ["on_all_gpus() {", f'    torchrun {meets} --nproc-per-node="$DSTACK_GPUS_PER_NODE" "$@"', "}"]
