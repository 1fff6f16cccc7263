"""A real start with torchrun, and the real parsers of SkyPilot and dstack, which it installs: collected only when named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from fullstep.formats import TOOLS, launch_from
from fullstep.job import complete, worksheet_from_mapping

SKYPILOT, DSTACK = "skypilot==0.14.1", "dstack==0.22.5"
BIN = Path(sys.executable).parent


def made(tool: str, sheet: dict[str, Any] | None = None, **chosen: Any) -> dict[str, str]:
    """The files by name, for Llama-3.1-8B with LoRA on H100-SXM."""
    base = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "method": {"kind": "lora"}, "machine": {"gpu": "H100-SXM", "gpus": 8}}
    job = complete(worksheet_from_mapping({**base, **(sheet or {})}, "job.toml"))
    return {file.name: file.text for file in TOOLS[tool](launch_from(job, **chosen))}


# torchrun

TRAIN = '''
import argparse, os, shutil, time
import torch, torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--output", default=os.environ["CHECKPOINT_DIR"])
wanted = parser.parse_args()
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
resumed = os.environ["RESUME_FROM"]
first = torch.load(os.path.join(resumed, "state.pt"))["step"] if resumed else 0
print(f"rank {rank} of {ranks} begins at {first}", flush=True)
for step in range(first + 1, wanted.steps + 1):
    one = torch.tensor([float(rank + 1)])
    dist.all_reduce(one)
    assert one.item() == ranks * (ranks + 1) / 2
    time.sleep(0.1)
    if rank == 0 and step % 5 == 0:
        part, whole = f"{wanted.output}/tmp-step-{step}", f"{wanted.output}/step-{step}"
        os.makedirs(part)
        torch.save({"step": step}, f"{part}/state.pt")
        os.rename(part, whole)
dist.barrier()
print(f"rank {rank} ends at {wanted.steps}", flush=True)
dist.destroy_process_group()
'''


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """The exported script in a session of its own, so that all of it can be killed."""
    place = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        return subprocess.Popen(["bash", "launch.sh"], cwd=folder, env=place, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def test_torchrun_measures_is_killed_and_resumes(tmp_path: Path) -> None:
    sheet = {"machine": {"gpu": "H100-SXM", "gpus": 2}, "step": {"framework": "torch"}}
    (text,) = made("torchrun", sheet, command="train.py --steps 40", measure='--steps 2 --output "$MEASURE_DIR"').values()
    (tmp_path / "launch.sh").write_text(text, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    saved = tmp_path / "checkpoints" / "llama-3-1-8b-lora"

    running = start(tmp_path, tmp_path / "first.log")
    try:
        deadline = time.monotonic() + 120
        while not (saved / "step-10").exists() and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (saved / "step-10").exists(), (tmp_path / "first.log").read_text(encoding="utf-8")
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    kill_left_over(tmp_path)
    first = (tmp_path / "first.log").read_text(encoding="utf-8")
    assert "rank 1 of 2 begins at 0" in first and "rank 0 ends at 2" in first and "ends at 40" not in first
    assert "For [measured] of the worksheet" in first
    assert "rank 0 ends at 2" in (saved / "measured-step" / "output-0.log").read_text(encoding="utf-8")
    newest = max(int(path.name.removeprefix("step-")) for path in saved.glob("step-*"))

    running = start(tmp_path, tmp_path / "second.log")
    assert running.wait(timeout=120) == 0
    second = (tmp_path / "second.log").read_text(encoding="utf-8")
    assert f"Going on from {saved}/step-{newest}; the short step is left out." in second
    assert f"rank 0 of 2 begins at {newest}" in second and f"rank 1 of 2 begins at {newest}" in second
    assert "rank 0 ends at 40" in second and "ends at 2\n" not in second and "For [measured]" not in second


def test_a_short_step_that_fails_keeps_torchrun_from_the_long_run(tmp_path: Path) -> None:
    sheet = {"machine": {"gpu": "H100-SXM", "gpus": 2}, "step": {"framework": "torch"}}
    (text,) = made("torchrun", sheet, command="train.py --steps 5", measure="--no-such-option").values()
    (tmp_path / "launch.sh").write_text(text, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    running = start(tmp_path, tmp_path / "log")
    assert running.wait(timeout=120) != 0
    assert "begins at" not in (tmp_path / "log").read_text(encoding="utf-8")


@pytest.mark.parametrize("interruptible", [False, True])
def test_two_nodes_meet(tmp_path: Path, interruptible: bool) -> None:
    """Two scripts on this machine, which take each other for two nodes."""
    sheet = {"machine": {"gpu": "H100-SXM", "gpus": 1, "nodes": 2}, "step": {"framework": "torch"}}
    short = '--steps 2 --output "$MEASURE_DIR"'
    (text,) = made("torchrun", sheet, command="train.py --steps 5", measure=short, interruptible=interruptible).values()
    port = free_port()
    text = text.replace("port=29500", f"port={port}").replace("port=29501", f"port={free_port()}")
    (tmp_path / "launch.sh").write_text(text, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    place = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    both: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": tmp_path}
    nodes = [subprocess.Popen(["bash", "launch.sh"], env={**place, "NODE_RANK": str(rank)}, **both) for rank in range(2)]
    outputs = [node.communicate(timeout=180)[0].decode() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert "of 2 begins at 0" in outputs[0] and "of 2 begins at 0" in outputs[1]
    assert sum(output.count("ends at 5") for output in outputs) == 2


def free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def kill_left_over(folder: Path) -> None:
    """Workers that torchrun put into sessions of their own: those whose folder is this test's."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve() == folder and entry.name != str(os.getpid()):
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, PermissionError):
            continue


# The parsers of SkyPilot and dstack


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with both tools. A failure to install them is a failure of the test."""
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", SKYPILOT, DSTACK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "home").mkdir()
    return python


READ_SKYPILOT = """
import json, sys
import sky
from sky.utils import accelerator_registry
task = sky.Task.from_yaml(sys.argv[1])
(resources,) = task.resources if len(task.resources) == 1 else [list(task.resources)]
many = resources if isinstance(resources, list) else [resources]
for one in many:
    name, = one.accelerators
    assert accelerator_registry.canonicalize_accelerator_name(name, None) == name, name
print("READ " + json.dumps({
    "name": task.name, "nodes": task.num_nodes, "spot": [one.use_spot for one in many], "gpus": [one.accelerators for one in many],
    "disk": many[0].disk_size, "recovery": many[0].job_recovery, "tier": str(many[0].network_tier), "region": many[0].region,
    "instance": many[0].instance_type, "mounts": {path: str(mount.mode) for path, mount in task.storage_mounts.items()},
    "run": task.run,
}))
"""
CATALOGUE = {
    "common/accelerators.csv": "AcceleratorName,Clouds\nH100,\"['AWS']\"\nA6000,\"['Lambda']\"\nRTXA6000,\"['RunPod']\"\n",
    "common/metadata.csv": "GPU,MemoryGB,Manufacturer\nH100,80,NVIDIA\n",
    "aws/vms.csv": "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch\n"
    "p5.48xlarge,H100,8,192,2048,,55.04,20.0,us-east-1,us-east-1a,x86_64\n",
}
"""SkyPilot's catalogue of prices by hand: the parser looks regions and instances up in it, and would fetch it"""


def read_by(python: Path, program: str, path: Path) -> dict[str, Any]:
    home = python.parents[2] / "home"
    for name, text in CATALOGUE.items():
        file = home / ".sky" / "catalogs" / "v8" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    place = {**os.environ, "HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "DO_NOT_TRACK": "1"}
    command = [str(python), "-c", program, str(path)]
    done = subprocess.run(command, cwd=path.parent, env=place, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("READ ")]
    found: dict[str, Any] = json.loads(line.removeprefix("READ "))
    return found


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        (1, {}),
        (2, {"interruptible": True, "checkpoints": "mine"}),
        (2, {"interruptible": True, "provider": "aws", "region": "us-east-1", "instance": "p5.48xlarge", "price_per_hour": "55.04"}),
        (1, {"command": """train.py 'a: b' "${{ x }}" #""", "host_gib": 100, "max_hours": 5.0}),
    ],
    ids=["plain", "spot", "offer", "hostile"],
)
def test_skypilot_reads_what_is_meant(tools: Path, tmp_path: Path, nodes: int, chosen: dict[str, Any]) -> None:
    sheet = {"machine": {"gpu": "H100-SXM", "gpus": 8, "nodes": nodes}}
    ((name, text),) = made("skypilot", sheet, **chosen).items()
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_by(tools, READ_SKYPILOT, tmp_path / name)
    assert (found["name"], found["nodes"], found["gpus"]) == ("llama-3-1-8b-lora", nodes, [{"H100": 8}])
    assert found["spot"] == [bool(chosen.get("interruptible"))]
    assert found["disk"] == 70 and found["recovery"]["strategy"] == "EAGER_NEXT_REGION"
    assert ("BEST" in found["tier"].upper()) == (nodes > 1)
    assert (found["region"], found["instance"]) == (chosen.get("region"), chosen.get("instance"))
    assert found["mounts"] == {"/checkpoints": "StorageMode.MOUNT_CACHED"}
    assert chosen.get("command", "train.py") in found["run"]


def test_skypilot_takes_several_names_as_alternatives(tools: Path, tmp_path: Path) -> None:
    ((name, text),) = made("skypilot", {"machine": {"gpu": "A6000", "gpus": 2}}).items()
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_by(tools, READ_SKYPILOT, tmp_path / name)
    assert sorted(map(str, found["gpus"])) == ["{'A6000': 2}", "{'RTXA6000': 2}"]


READ_DSTACK = """
import json, sys
import yaml
from pathlib import Path
from dstack._internal.core.models.configurations import parse_apply_configuration
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.dstack.yml")):
    made = parse_apply_configuration(yaml.safe_load(path.read_text()))
    found[made.type] = json.loads(made.model_dump_json())
print("READ " + json.dumps(found))
"""


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        (1, {}),
        (2, {"interruptible": True}),
        (2, {"interruptible": True, "provider": "runpod", "region": "EU-RO-1", "price_per_hour": "23.60", "max_hours": 10.5}),
        (2, {"provider": "kubernetes"}),
        (1, {"provider": "aws", "region": "us-east-1", "instance": "p5.48xlarge", "host_gib": 64}),
        (2, {"provider": "nebius", "checkpoints": "/mnt/shared"}),
        (1, {"command": """train.py 'a: b' "$${{ x }}" #"""}),
    ],
    ids=["plain", "spot", "runpod", "kubernetes", "aws", "folder", "hostile"],
)
def test_dstack_reads_what_is_meant(tools: Path, tmp_path: Path, nodes: int, chosen: dict[str, Any]) -> None:
    files = made("dstack", {"machine": {"gpu": "H100-SXM", "gpus": 8, "nodes": nodes}}, **chosen)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_by(tools, READ_DSTACK, tmp_path)
    assert set(found) == {"fleet", "task"} | ({"volume"} if len(files) == 3 else set())
    task, spot = found["task"], bool(chosen.get("interruptible"))
    gpu = task["resources"]["gpu"]
    assert (gpu["name"], gpu["memory"], gpu["count"]) == (["H100"], {"min": 80.0, "max": 80.0}, {"min": 8, "max": 8})
    assert found["fleet"]["resources"]["gpu"] == gpu
    assert (task["nodes"] or 1) == nodes and found["fleet"]["placement"] == ("cluster" if nodes > 1 else None)
    assert task["spot_policy"] == ("spot" if spot else "on-demand")
    assert (task["retry"] or {}).get("on_events") == (["no-capacity", "interruption"] if spot else None)
    assert task["max_price"] == (float(chosen["price_per_hour"]) if "price_per_hour" in chosen else None)
    assert task["resources"]["disk"]["size"] == {"min": 70.0, "max": None}
    assert chosen.get("command", "train.py") in task["commands"][0]
