"""The files of each tool: read back, and their scripts run with stand-ins for the programs of a cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fullstep.errors import InputError
from fullstep.formats import TOOLS, Launch, launch_from
from fullstep.hardware.catalogue import card_rows
from fullstep.job import complete, worksheet_from_mapping

COMMAND = "train.py --config my.yaml"


def launch(nodes: int = 1, gpus: int = 8, gpu: str = "H100-SXM", sheet: dict[str, Any] | None = None, **chosen: Any) -> Launch:
    machine = {"gpu": gpu, "gpus": gpus, "nodes": nodes}
    written = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "method": {"kind": "lora"}, "machine": machine, **(sheet or {})}
    return launch_from(complete(worksheet_from_mapping(written, "job.toml")), **{"command": COMMAND, **chosen})


def only(tool: str, made: Launch) -> str:
    (file,) = TOOLS[tool](made)
    return file.text


def documents(made: Launch) -> dict[str, Any]:
    return {file.name.split(".")[1]: yaml.safe_load(file.text) for file in TOOLS["dstack"](made)}


def sky(made: Launch) -> dict[str, Any]:
    task: dict[str, Any] = yaml.safe_load(only("skypilot", made))
    return task


def scripts(made: Launch) -> dict[str, str]:
    """The shell script of every tool."""
    (commands,) = documents(made)["task"]["commands"]
    return {"skypilot": sky(made)["run"], "dstack": commands, "slurm": only("slurm", made), "torchrun": only("torchrun", made)}


# SkyPilot


def test_skypilot_on_spot_recovers_from_a_bucket() -> None:
    task = sky(launch(2, interruptible=True, provider="aws", region="us-east-1", instance="p5.48xlarge", checkpoints="s3://mine/runs"))
    assert task["num_nodes"] == 2
    assert task["resources"] == {
        "infra": "aws/us-east-1", "instance_type": "p5.48xlarge", "accelerators": {"H100": 8}, "disk_size": 70, "network_tier": "best",
        "use_spot": True, "job_recovery": {"strategy": "EAGER_NEXT_REGION", "max_restarts_on_errors": 0},
    }  # fmt: skip
    assert task["file_mounts"] == {"/checkpoints": {"source": "s3://mine/runs", "mode": "MOUNT_CACHED"}}
    assert '--node-rank="$SKYPILOT_NODE_RANK" --master-addr="${hosts[0]}"' in task["run"]


def test_skypilot_on_one_node_asks_for_no_network() -> None:
    task = sky(launch(host_gib=100))
    assert "network_tier" not in task["resources"] and "use_spot" not in task["resources"]
    assert task["resources"]["memory"] == "100+"
    assert task["file_mounts"]["/checkpoints"]["name"] == "llama-3-1-8b-lora-checkpoints"


def test_skypilot_names_of_a_card_depend_on_the_provider() -> None:
    assert sky(launch(gpu="A100-SXM4-80GB"))["resources"]["accelerators"] == {"A100-80GB": 8}
    assert sky(launch(gpu="A100-SXM4-80GB", provider="runpod"))["resources"]["accelerators"] == {"A100-80GB-SXM": 8}
    assert sky(launch(gpu="A6000", gpus=2))["resources"]["accelerators"] == {"A6000": 2, "RTXA6000": 2}


def test_skypilot_says_where_no_bucket_is_mounted() -> None:
    text = only("skypilot", launch(provider="runpod"))
    assert "file_mounts" not in yaml.safe_load(text) and "mounts no bucket at runpod" in text


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"provider": "selectel"}, "--provider: selectel"),
        ({"provider": "lambda", "interruptible": True}, "no spot capacity at lambda"),
        ({"provider": "runpod", "nodes": 2}, "joins no nodes at runpod"),
        ({"provider": "runpod", "checkpoints": "s3://a/b"}, "mounts no bucket at runpod"),
        ({"checkpoints": "ftp://a/b"}, "--checkpoints"),
        ({"checkpoints": "My_Bucket"}, "--checkpoints"),
        ({"instance": "p5.48xlarge"}, "without its provider"),
        ({"gpu": "Gaudi3"}, "for which skypilot has no name.*H100-SXM"),
    ],
)
def test_skypilot_refuses(chosen: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        TOOLS["skypilot"](launch(**chosen))


# dstack


def test_dstack_on_spot_is_a_volume_a_cluster_and_a_task_that_retries() -> None:
    made = launch(2, interruptible=True, provider="runpod", region="EU-RO-1", price_per_hour="23.6", max_hours=10.5, host_gib=50)
    files = documents(made)
    assert list(files) == ["volume", "fleet", "task"]
    assert files["volume"] == {"type": "volume", "name": "llama-3-1-8b-lora-disk", "backend": "runpod", "size": "10GB", "region": "EU-RO-1"}
    assert files["fleet"]["nodes"] == "0..2" and files["fleet"]["placement"] == "cluster"
    task = files["task"]
    assert task["resources"] == {"gpu": "H100:80GB:8", "disk": "70GB..", "memory": "50GB..", "shm_size": "32GB"}
    assert (task["nodes"], task["spot_policy"], task["max_price"], task["max_duration"]) == (2, "spot", 23.6, "630m")
    assert task["retry"] == {"on_events": ["no-capacity", "interruption"], "duration": "24h"}
    assert task["volumes"] == ["llama-3-1-8b-lora-disk:/checkpoints"]
    assert task["fleets"] == [files["fleet"]["name"]]


def test_dstack_on_demand_does_not_retry() -> None:
    files = documents(launch())
    assert list(files) == ["fleet", "task"]
    assert "retry" not in files["task"] and "placement" not in files["fleet"] and "nodes" not in files["task"]
    assert files["task"]["spot_policy"] == "on-demand"


@pytest.mark.parametrize(("provider", "why"), [("aws", "a volume of aws belongs to one node"), ("nebius", "no volumes at nebius")])
def test_dstack_says_where_several_nodes_have_no_volume(provider: str, why: str) -> None:
    made = launch(2, provider=provider)
    assert "volumes" not in documents(made)["task"]
    assert why in TOOLS["dstack"](made)[-1].text
    shared = launch(2, provider=provider, checkpoints="/mnt/shared")
    assert documents(shared)["task"]["volumes"] == ["/mnt/shared:/checkpoints"]


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"provider": "coreweave"}, "--provider: coreweave"),
        ({"provider": "lambda", "nodes": 2}, "joins no nodes at lambda"),
        ({"provider": "vast", "interruptible": True}, "interruptible offers of vastai"),
        ({"provider": "aws", "nodes": 2, "checkpoints": "mine"}, "belongs to one node"),
        ({"checkpoints": "s3://bucket"}, "mounts no buckets"),
        ({"checkpoints": "/a:/b"}, "--checkpoints"),
        ({"gpu": "A30"}, "for which dstack has no name.*H100-SXM"),
    ],
)
def test_dstack_refuses(chosen: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        TOOLS["dstack"](launch(**chosen))


# Slurm and torchrun


def directives(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_slurm_directives() -> None:
    made = launch(2, interruptible=True, max_hours=12, host_gib=200, sheet={"step": {"framework": "torch"}})
    assert directives(only("slurm", made)) == [
        "--job-name=llama-3-1-8b-lora", "--output=%x-%j.out", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8", "--cpus-per-task=64",
        "--mem=200G", "--time=720", "--requeue", "--open-mode=append", "--signal=B:USR1@120",
    ]  # fmt: skip
    assert directives(only("slurm", launch()))[-1] == "--no-requeue"


@pytest.mark.parametrize("tool", ["slurm", "torchrun"])
def test_folders_only(tool: str) -> None:
    with pytest.raises(InputError, match="--checkpoints"):
        TOOLS[tool](launch(checkpoints="s3://bucket/x"))
    assert "CHECKPOINT_DIR='/data/a b'" in only(tool, launch(checkpoints="/data/a b"))


@pytest.mark.parametrize("card", ["Gaudi3", "P40", "MI300X"])
def test_any_card_starts_with_slurm_and_torchrun(card: str) -> None:
    assert card in only("slurm", launch(gpu=card)) and card in only("torchrun", launch(gpu=card))


# All of them


HOSTILE = {
    "command": """train.py --name "it's $HOME" --note 'a: b # c' --x="${{ dstack.job_num }}" --y %s --z '"'""",
    "measure": "-- '}' \"*/\" #SBATCH --exclusive",
    "setup": "echo ': {' && true",
}


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("interruptible", [False, True])
@pytest.mark.parametrize("chosen", [{}, {"command": None}, {"measure": "none"}, HOSTILE], ids=["plain", "example", "unmeasured", "hostile"])
def test_every_script_is_a_script(nodes: int, interruptible: bool, chosen: dict[str, Any]) -> None:
    for tool, script in scripts(launch(nodes, interruptible=interruptible, **chosen)).items():
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), tool
        if chosen.get("command"):
            assert f"on_all_gpus {chosen['command']}\n" in script, tool


def test_what_a_hostile_worksheet_says_stays_in_comments() -> None:
    config = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
              "vocab_size": 1000, "note": "$(touch x)`\n#SBATCH --exclusive\nrun: evil\u2028- x\x85- y\x1b[31m"}  # fmt: skip
    made = launch(sheet={"model": {"name": "a/7--B_x", "config": config}})
    assert made.name == "m7-b-x-lora"
    for tool in TOOLS:
        for file in TOOLS[tool](made):
            assert not set("\u2028\x85\x1b") & set(file.text)
            tail = file.text.partition("# The worksheet:")[2]
            assert all(line.startswith("#") for line in tail.splitlines()[1:])
    assert len(directives(only("slurm", made))) == 7
    assert set(sky(made)) == {"name", "num_nodes", "workdir", "resources", "file_mounts", "setup", "run"}


def test_every_card_with_a_name_is_of_the_catalogue() -> None:
    known = 0
    for card in card_rows():
        for tool in ("skypilot", "dstack"):
            try:
                TOOLS[tool](launch(gpu=card, gpus=1, sheet={"precision": {"compute": "float16"}}))
                known += 1
            except InputError as error:
                assert f"for which {tool} has no name" in str(error)
    listed = Path(__file__).parents[2] / "src" / "fullstep" / "formats" / "data" / "launch_cards.csv"
    rows = [line.split(",") for line in listed.read_text("utf-8").splitlines()[1:]]
    assert {row[0] for row in rows} <= set(card_rows())
    assert known == sum(bool(row[1]) + bool(row[3]) for row in rows)


STAND_INS = {
    "torchrun": """echo "torchrun $*" >> "$LOG"; case "$*" in *short*) exit "${SHORT_ENDS:-0}";; esac""",
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "scontrol": 'if [ "$1" = show ]; then printf "one\\ntwo\\n"; else echo "scontrol $*" >> "$LOG"; fi',
    "scancel": 'echo "scancel $*" >> "$LOG"',
    "nvidia-smi": 'while :; do echo "0, 1024"; echo "1, 20480"; sleep 0.05; done',
}
PLACES = {
    "skypilot": {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2",
                 "SKYPILOT_NUM_GPUS_PER_NODE": "8"},
    "dstack": {"DSTACK_NODE_RANK": "0", "DSTACK_NODES_NUM": "2", "DSTACK_GPUS_PER_NODE": "8", "DSTACK_MASTER_NODE_IP": "10.0.0.1"},
    "slurm": {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "one,two", "SLURM_CPUS_PER_TASK": "64", "SLURM_SUBMIT_DIR": "/nowhere"},
    "torchrun": {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"},
}  # fmt: skip
MEETS = {
    "skypilot": "--nnodes=2 --nproc-per-node=8 --node-rank=0 --master-addr=10.0.0.1 --master-port={port}",
    "dstack": "--nnodes=2 --node-rank=0 --master-addr=10.0.0.1 --master-port={port} --nproc-per-node=8",
    "slurm": "--nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=one:{port} --rdzv-id=7-0-{part}",
    "torchrun": "--nnodes=2 --nproc-per-node=8 --max-restarts=3 --rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:{port}"
    " --rdzv-id=llama-3-1-8b-lora-{part} --rdzv-conf=is_host=1",
}


class Cluster:
    """A folder of stand-ins, and a script that runs among them."""

    def __init__(self, folder: Path, tool: str) -> None:
        self.folder, self.tool, self.log = folder, tool, folder / "log"
        self.checkpoints = folder / "checkpoints" / "llama-3-1-8b-lora"
        (folder / "bin").mkdir()
        for name, body in STAND_INS.items():
            program = folder / "bin" / name
            program.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
            program.chmod(0o755)

    def run(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        script = script.replace("/checkpoints/llama-3-1-8b-lora", str(self.checkpoints)) if self.tool in ("skypilot", "dstack") else script
        script = script.replace("$SLURM_SUBMIT_DIR", str(self.folder))
        place = {"PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "LOG": str(self.log), **PLACES[self.tool], **more}
        return subprocess.run(["bash", "-c", script], env=place, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60)

    def started(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


@pytest.fixture(params=list(PLACES))
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, request.param)


def script_of(cluster: Cluster, **chosen: Any) -> str:
    return scripts(launch(2, interruptible=True, command="long.py", measure="short.py", **chosen))[cluster.tool]


def test_the_short_step_is_first_and_its_memory_is_told(cluster: Cluster) -> None:
    done = cluster.run(script_of(cluster))
    assert done.returncode == 0, done.stderr
    meets = MEETS[cluster.tool]
    assert cluster.started() == [
        f"torchrun {meets.format(port=29501, part='measure')} short.py",
        f"torchrun {meets.format(port=29500, part='run')} long.py",
    ]
    assert (cluster.checkpoints / "measured-step").is_dir()


def test_a_long_enough_step_shows_the_largest_card(cluster: Cluster) -> None:
    (cluster.folder / "bin" / "torchrun").write_text("#!/usr/bin/env bash\nsleep 0.4\n", encoding="utf-8")
    done = cluster.run(script_of(cluster))
    assert "device_peak_gib = 20.00" in done.stdout, done.stderr


def test_where_the_short_step_fails_the_long_run_does_not_start(cluster: Cluster) -> None:
    done = cluster.run(script_of(cluster), SHORT_ENDS="9")
    assert done.returncode == 9
    assert [line.split()[-1] for line in cluster.started()] == ["short.py"]


def test_after_an_interruption_the_newest_whole_checkpoint_is_found(cluster: Cluster) -> None:
    for step in (9, 10, 100):
        (cluster.checkpoints / f"checkpoint-{step}").mkdir(parents=True)
        if step < 100:  # it was cut off
            (cluster.checkpoints / f"checkpoint-{step}" / "trainer_state.json").touch()
    short = cluster.checkpoints / "measured-step" / "checkpoint-500"
    short.mkdir(parents=True)
    (short / "trainer_state.json").touch()
    done = cluster.run(scripts(launch(2, command='long.py "$RESUME_FROM"', measure="short.py"))[cluster.tool])
    assert done.returncode == 0, done.stderr
    (started,) = cluster.started()
    assert started.endswith(f"long.py {cluster.checkpoints}/checkpoint-10")


def test_without_a_last_file_the_highest_number_counts(cluster: Cluster) -> None:
    for name in ("step-9", "step-10", "tmp-step-11", "logs"):
        (cluster.checkpoints / name).mkdir(parents=True)
    made = launch(2, command='long.py "$RESUME_FROM"', sheet={"step": {"framework": "torch"}})
    cluster.run(scripts(made)[cluster.tool])
    assert cluster.started()[-1].endswith("/step-10")


def test_a_run_that_fails_fails(cluster: Cluster) -> None:
    (cluster.folder / "bin" / "torchrun").write_text("#!/usr/bin/env bash\nexit 5\n", encoding="utf-8")
    assert cluster.run(scripts(launch(2, interruptible=True, measure="none"))[cluster.tool]).returncode == 5


def test_slurm_queues_itself_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "slurm")
    (tmp_path / "bin" / "torchrun").write_text("#!/usr/bin/env bash\nkill -USR1 $BATCH\nsleep 1\n", encoding="utf-8")
    script = only("slurm", launch(2, interruptible=True, measure="none"))
    done = cluster.run(script.replace("set -euo pipefail", "set -euo pipefail; export BATCH=$$"))
    assert done.returncode == 0, done.stderr
    assert cluster.started() == ["scancel --signal=TERM 7", "scontrol requeue 7"]


def test_a_failed_setup_ends_the_task_of_dstack(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "dstack")
    done = cluster.run("true && " + scripts(launch(2, setup="false"))["dstack"])
    assert done.returncode != 0 and cluster.started() == []


def test_a_hostile_command_reaches_torchrun_as_the_shell_reads_it(cluster: Cluster) -> None:
    made = launch(2, command="""long.py 'a b' "$(echo in)" --x='# no comment'""", measure="none")
    cluster.run(scripts(made)[cluster.tool])
    assert cluster.started()[-1].endswith("long.py a b in --x=# no comment")
