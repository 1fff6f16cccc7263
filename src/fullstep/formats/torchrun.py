"""A shell script around torchrun, for machines that are there already."""

from __future__ import annotations

import shlex

from fullstep.formats.folder import checkpoint_folder
from fullstep.formats.launch import Launch, LaunchFile
from fullstep.formats.shell import RUN_PORT, comments, head, probe_script, tail, training_script

RESTARTS = 3
"""of the processes by torchrun, on capacity that may be taken back (assumed)"""


def torchrun_files(launch: Launch) -> tuple[LaunchFile, ...]:
    """One script. On one node it starts as it is; on several it is started on each, with NODE_RANK and MASTER_ADDR.

    Raises:
        InputError: the checkpoints are not to be in a folder
    """
    folder = checkpoint_folder(launch)
    default = shlex.quote(folder) if folder else f'"$PWD/checkpoints/{launch.name}"'
    name = f"{launch.name}.sh"
    if launch.nodes == 1:
        start = [f"Start: bash {name}. After an interruption: the same again."]
    else:
        every = f"NODE_RANK=0 MASTER_ADDR=HOST bash {name}"
        start = [f"Start, on every node with its own NODE_RANK from 0 to {launch.nodes - 1}, HOST being the node 0: {every}",
                 "After an interruption: the same again, on all of them. They have to see the same CHECKPOINT_DIR."]  # fmt: skip
    text = "#!/usr/bin/env bash\n" + head(launch, start) + comments([f"Install what is needed first: {launch.setup}"]) + "\n"
    checkpoint_dir = f"${{CHECKPOINT_DIR:-{default}}}" if folder is None else default
    if launch.probe is None:
        script = training_script(launch, checkpoint_dir=checkpoint_dir, node="${NODE_RANK:-0}", rendezvous=_rendezvous(launch))
    else:
        options = f'--nodes {launch.nodes} --node-rank "$NODE_RANK" --rendezvous "$MASTER_ADDR:{RUN_PORT}"' if launch.nodes > 1 else ""
        script = probe_script(launch, folder=checkpoint_dir, starts=_asked(launch), options=options)
    return (LaunchFile(name, text + script + tail(launch)),)


def _rendezvous(launch: Launch) -> list[str]:
    restarts = RESTARTS if launch.interruptible else 0
    common = f"--max-restarts={restarts}"
    if launch.nodes == 1:
        finds = [f'    torchrun --standalone --nnodes=1 --nproc-per-node={launch.gpus} {common} "$@"']
    else:
        finds = [
            "    local is_host=0",
            '    if [ "$NODE_RANK" = 0 ]; then is_host=1; fi',
            f"    torchrun --nnodes={launch.nodes} --nproc-per-node={launch.gpus} {common} --rdzv-backend=c10d \\",
            f'        --rdzv-endpoint="$MASTER_ADDR:$port" --rdzv-id="{launch.name}-$part" --rdzv-conf="is_host=$is_host" "$@"',
        ]
    said = [
        "# torchrun starts processes that died again, in the environment of the first start: RESUME_FROM is still that of then.",
        "# Where TORCHELASTIC_RESTART_COUNT is not 0, your command has to look into CHECKPOINT_DIR by itself.",
    ]
    return [*_asked(launch), *(said if restarts else []), "on_all_gpus() {", *finds, "}"]


def _asked(launch: Launch) -> list[str]:
    """What has to be said on each of several nodes."""
    return [] if launch.nodes == 1 else [': "${NODE_RANK:?the rank of this node, from 0 on}" "${MASTER_ADDR:?the host of the node 0}"', ""]
