"""A batch script for Slurm: one task a node, which starts torchrun."""

from __future__ import annotations

import shlex
from math import ceil

from fullstep.formats.folder import checkpoint_folder
from fullstep.formats.launch import Launch, LaunchFile
from fullstep.formats.shell import comments, head, probe_script, tail, training_script

NOTICE_SECONDS = 120
"""before the end of the time limit, when the job is told to go (assumed: a save is left to the run's own interval)"""
RESTARTS = 50
"""after which a job that never gets further stays down (assumed)"""
CORES_PER_GPU = 8
"""where the worksheet states no cores: without a number Slurm may give one task a single core (assumed)"""

_CORES = "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
"""srun does not take over the cores that sbatch gives a task unless it is told so. Source: Slurm 22.05, RELEASE_NOTES"""


def slurm_files(launch: Launch) -> tuple[LaunchFile, ...]:
    """One batch script.

    Raises:
        InputError: the checkpoints are not to be in a folder
    """
    folder = checkpoint_folder(launch)
    checkpoint_dir = shlex.quote(folder) if folder else f'"$SLURM_SUBMIT_DIR/checkpoints/{launch.name}"'
    name = f"{launch.name}.sbatch"
    start = [f"Start: sbatch {name}", "What is the cluster's own has to be added: account, partition, and its name for the card (--gres)."]
    text = "#!/usr/bin/env bash\n" + _directives(launch) + "\n" + head(launch, start) + "\n" + _before(launch)
    if launch.probe is not None:
        script = probe_script(launch, folder=checkpoint_dir, starts=[_CORES], prefix=_on_every_node(launch))
    else:
        script = training_script(
            launch, checkpoint_dir=checkpoint_dir, node="${SLURM_NODEID:-0}", rendezvous=_rendezvous(launch), waits=launch.interruptible
        )
    return (LaunchFile(name, text + script + tail(launch)),)


def _directives(launch: Launch) -> str:
    options = [
        f"--job-name={launch.name}",
        "--output=%x-%j.out",
        f"--nodes={launch.nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={launch.gpus}",
        f"--cpus-per-task={launch.cpu_cores or CORES_PER_GPU * launch.gpus}",
    ]
    if launch.host_gib is not None:
        options.append(f"--mem={launch.host_gib}G")
    if launch.max_hours is not None:
        options.append(f"--time={ceil(launch.max_hours * 60)}")
    if launch.interruptible and launch.probe is None:
        options += ["--requeue", "--open-mode=append", f"--signal=B:USR1@{NOTICE_SECONDS}"]
    else:
        options.append("--no-requeue")
    return "".join(f"#SBATCH {option}\n" for option in options)


def _before(launch: Launch) -> str:
    limit = [] if launch.max_hours is not None else ["No --time: the run's hours are not stated, so that the partition's limit holds."]
    return comments([*limit, f"Install what is needed first: {launch.setup}"]) + "\n"


def _rendezvous(launch: Launch) -> list[str]:
    attempt = '"$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$part"'
    if launch.nodes == 1:
        finds, meets = [], "--standalone"
    else:
        finds = ['mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")', 'head_node="${hosts[0]}"', ""]
        meets = f'--rdzv-backend=c10d --rdzv-endpoint="$head_node:$port" --rdzv-id={attempt}'
    starts = [
        _CORES,
        "on_all_gpus() {",
        f"    {_on_every_node(launch)}\\",
        f'        torchrun --nnodes={launch.nodes} --nproc-per-node={launch.gpus} {meets} "$@"',
        "}",
    ]
    return [*finds, *starts, *(_requeue() if launch.interruptible else [])]


def _on_every_node(launch: Launch) -> str:
    return f"srun --nodes={launch.nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 "


def _requeue() -> list[str]:
    return [
        "",
        f"# Slurm queues a preempted job again (--requeue). {NOTICE_SECONDS} s before the time limit this does the same:",
        "# processes get SIGTERM, and the job comes back and goes on from its newest checkpoint.",
        "queue_again() {",
        '    scancel --signal=TERM "$SLURM_JOB_ID" || true',
        '    wait "$running" || true',
        f'    if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {RESTARTS} ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
        "    exit 0",
        "}",
        "running=",
        "trap queue_again USR1",
    ]
