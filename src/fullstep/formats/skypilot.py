"""A task for SkyPilot, to be started as a managed job, which is what recovers.

Source:
    skypilot 0.14.1: sky/utils/schemas.py (keys), sky/clouds/*.py (what each cloud does not do), sky/jobs/recovery_strategy.py
"""

from __future__ import annotations

import shlex
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.formats.card_names import skypilot_names
from fullstep.formats.launch import Launch, LaunchFile
from fullstep.formats.shell import comments, head, probe_script, tail, training_script
from fullstep.formats.yaml_text import Script, yaml_text

CLOUDS = (
    "aws", "azure", "gcp", "ibm", "lambda", "scp", "oci", "kubernetes", "runpod", "vast", "vsphere", "cudo", "fluidstack", "paperspace",
    "primeintellect", "do", "nebius", "ssh", "slurm", "hyperbolic", "seeweb", "shadeform", "yotta", "mithril", "verda",
)  # fmt: skip
_ALSO_CALLED = {"digitalocean": "do", "vastai": "vast", "prime_intellect": "primeintellect"}
_NO_SPOT = frozenset((
    "cudo", "do", "fluidstack", "hyperbolic", "kubernetes", "lambda", "paperspace", "scp", "seeweb", "shadeform", "slurm", "ssh", "vsphere",
    "yotta",
))  # fmt: skip
_ONE_NODE = frozenset(("hyperbolic", "primeintellect", "runpod", "seeweb", "shadeform", "vast", "verda", "vsphere", "yotta"))
_NO_BUCKETS = frozenset(("hyperbolic", "runpod", "seeweb", "shadeform", "slurm", "vast", "verda", "yotta"))
"""clouds on which SkyPilot mounts no bucket"""
_NETWORK_TIERS = frozenset(("aws", "azure", "gcp", "ibm", "nebius", "oci"))
_BUCKETS = ("s3://", "gs://", "https://", "r2://", "cos://", "oci://", "nebius://", "cw://", "vastdata://", "hf://")
_MOUNT = "/checkpoints"
_RESTARTS_ON_ERRORS = 0
"""a fault of the command itself is not run again: it would be paid for again"""


def skypilot_files(launch: Launch) -> tuple[LaunchFile, ...]:
    """One task.

    Raises:
        InputError: SkyPilot does not know the card or the cloud, or the cloud does not do what is asked for
    """
    cloud = _cloud(launch)
    mounts, folder, said = _checkpoints(launch, cloud)
    name = f"{launch.name}.sky.yaml"
    start = [
        f"Start: sky jobs launch {name}",
        "The folder of this file goes along (workdir). What it would cost: sky launch --dryrun",
    ]
    if launch.max_hours is not None:
        start.append(f"SkyPilot has no limit of hours: {launch.max_hours:g} h are yours to watch (sky jobs cancel).")
    task: dict[str, Any] = {"name": launch.name, "num_nodes": launch.nodes, "workdir": ".", "resources": _resources(launch, cloud)}
    if mounts:
        task["file_mounts"] = mounts
    if launch.probe is None:
        run = training_script(launch, checkpoint_dir=shlex.quote(folder), node="$SKYPILOT_NODE_RANK", rendezvous=_rendezvous(launch))
    else:
        run = probe_script(launch, folder=shlex.quote(folder))
    task |= {"setup": Script(launch.setup + "\n"), "run": Script(run)}
    text = head(launch, start) + comments(said) + "\n" + yaml_text(task) + tail(launch)
    return (LaunchFile(name, text, loses_checkpoints=launch.checkpoints is None and cloud in _NO_BUCKETS),)


def _cloud(launch: Launch) -> str | None:
    if launch.provider is None:
        return None
    cloud = _ALSO_CALLED.get(launch.provider, launch.provider)
    if cloud not in CLOUDS:
        raise InputError(Fault("--provider", f"{launch.provider}, which SkyPilot does not know", ", ".join(CLOUDS)))
    if launch.interruptible and cloud in _NO_SPOT:
        spot = ", ".join(one for one in CLOUDS if one not in _NO_SPOT)
        raise InputError(Fault("--interruptible", f"SkyPilot has no spot capacity at {cloud}", spot))
    if launch.nodes > 1 and cloud in _ONE_NODE:
        several = ", ".join(one for one in CLOUDS if one not in _ONE_NODE)
        raise InputError(Fault("machine.nodes", f"{launch.nodes}; SkyPilot joins no nodes at {cloud}", several))
    return cloud


def _resources(launch: Launch, cloud: str | None) -> dict[str, Any]:
    names = skypilot_names(launch.card, cloud)
    resources: dict[str, Any] = {}
    if cloud or launch.region:
        resources["infra"] = f"{cloud or '*'}/{launch.region}" if launch.region else cloud
    if launch.instance:
        if cloud is None:
            raise InputError(Fault("--instance", f"{launch.instance} without its provider", "--provider beside it"))
        resources["instance_type"] = launch.instance
    resources["accelerators"] = dict.fromkeys(names, launch.gpus)
    if launch.host_gib is not None and not launch.instance:
        resources["memory"] = f"{launch.host_gib}+"
    resources["disk_size"] = launch.disk_gb
    if launch.nodes > 1 and (cloud is None or cloud in _NETWORK_TIERS):
        resources["network_tier"] = "best"
    if launch.interruptible:
        resources["use_spot"] = True
    resources["job_recovery"] = {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": _RESTARTS_ON_ERRORS}
    return resources


def _checkpoints(launch: Launch, cloud: str | None) -> tuple[dict[str, Any], str, list[str]]:
    """(mounts, folder of this run, what the file says about them)."""
    place = launch.checkpoints
    if place is not None and place.startswith("/"):
        return {}, f"{place.rstrip('/')}/{launch.name}", ["Checkpoints: a folder that has to be there on every node, and outlive them."]
    if cloud in _NO_BUCKETS:
        if place is not None:
            raise InputError(Fault("--checkpoints", f"SkyPilot mounts no bucket at {cloud}", "an absolute path, like that of a volume"))
        lost = "with the machine: name a folder of a volume by --checkpoints, or another provider"
        return {}, f"{_MOUNT}/{launch.name}", [f"Checkpoints: SkyPilot mounts no bucket at {cloud}, they are lost {lost}."]
    said = ["Checkpoints: MOUNT_CACHED writes to the node's disk and uploads from there. After an interruption they are there again, "
            f"at {_MOUNT}, as far as they were uploaded."]  # fmt: skip
    if place is None:
        said.append("The bucket is made by SkyPilot. Names of buckets are unique over all users: choose yours by --checkpoints.")
    if place is not None and "://" in place:
        if not place.lower().startswith(_BUCKETS):
            raise InputError(Fault("--checkpoints", f'"{place[:60]}"', f"a bucket's name, an absolute path, or {', '.join(_BUCKETS)}"))
        mount: dict[str, Any] = {"source": place, "mode": "MOUNT_CACHED"}
    else:
        mount = {"name": _bucket_name(place or f"{launch.name}-checkpoints"), "mode": "MOUNT_CACHED"}
    return {_MOUNT: mount}, f"{_MOUNT}/{launch.name}", said


def _bucket_name(name: str) -> str:
    allowed = "3 to 63 lower-case letters, digits and hyphens, a letter or digit at both ends"
    what = f"a bucket's name ({allowed}), its address like s3://bucket, or an absolute path"
    plain = name.replace("-", "")
    if 3 <= len(name) <= 63 and plain.isascii() and plain.isalnum() and name == name.lower().strip("-"):
        return name
    raise InputError(Fault("--checkpoints", f'"{name[:70]}"', what))


def _rendezvous(launch: Launch) -> list[str]:
    meets = "--standalone"
    finds: list[str] = []
    if launch.nodes > 1:
        finds = ['mapfile -t hosts <<< "$SKYPILOT_NODE_IPS"', ""]
        meets = '--node-rank="$SKYPILOT_NODE_RANK" --master-addr="${hosts[0]}" --master-port="$port"'
    nodes = '"$SKYPILOT_NUM_NODES"' if launch.nodes > 1 else "1"
    return [
        *finds,
        "on_all_gpus() {",
        f'    torchrun --nnodes={nodes} --nproc-per-node="$SKYPILOT_NUM_GPUS_PER_NODE" {meets} "$@"',
        "}",
    ]
