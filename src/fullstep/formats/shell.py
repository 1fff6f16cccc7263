"""The part that all launch files share: a shell script that measures a few steps and then trains, from the newest checkpoint on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from textwrap import wrap

from fullstep import __version__
from fullstep.errors import printable
from fullstep.formats.launch import Launch

RUN_PORT, MEASURE_PORT = 29500, 29501
"""on which nodes find each other: two, so that a node that measures never meets one that trains"""
_PAPER = 118


def comments(lines: Iterable[str]) -> str:
    """Comment lines that end where they should, whatever stands in them."""
    folded = (piece for line in lines for piece in wrap(printable(line), _PAPER, break_long_words=False, subsequent_indent="  ") or [""])
    return "".join(f"# {piece}".rstrip() + "\n" for piece in folded)


def head(launch: Launch, start: Sequence[str]) -> str:
    """The head of a file: how it is started, and what the worksheet says of it.

    Args:
        launch: what is launched
        start: lines of its own tool
    """
    many = "s" if launch.gpus > 1 else ""
    machine = f"{launch.nodes} node{'s' if launch.nodes > 1 else ''} with {launch.gpus} GPU{many} {launch.card} each"
    offer = " ".join(word for word in (launch.provider, launch.region, launch.instance) if word)
    price = f", {launch.price_per_hour} USD an hour and node" if launch.price_per_hour else ""
    lines = [f"{launch.name}, written by fullstep {__version__}", *start, "", f"Machine: {machine}", *launch.notes]
    if offer or price:
        lines.append(f"Offer: {offer or 'not named'}{price}")
    if launch.nodes > 1 and launch.network_gbit_s is not None:
        lines.append(f"Network: {launch.network_gbit_s:.3g} Gbit/s per node and direction are needed")
    lines.append(f"Disk: {launch.disk_gb} GB per node: {launch.disk_note}")
    return comments(lines)


def tail(launch: Launch) -> str:
    """The worksheet, as comments, in which it stays readable."""
    return "\n# The worksheet:\n#\n" + "".join(f"#   {printable(line)}".rstrip() + "\n" for line in launch.worksheet.splitlines())


def training_script(
    launch: Launch, *, checkpoint_dir: str, node: str, rendezvous: Sequence[str], first: str = "", waits: bool = False
) -> str:
    """Shell lines: checkpoints, the short step, the long run.

    Args:
        launch: what is run
        checkpoint_dir: a shell word, the folder that survives
        node: a shell word, the rank of this node
        rendezvous: lines that define ``on_all_gpus``, which starts a command line on every GPU; ``$part`` is measure or run, at ``$port``
        first: a line to begin with
        waits: the long run is started in the background and waited for, so that a trap can run
    """
    blocks = [["set -euo pipefail", *([first] if first else [])], _checkpoints(launch, checkpoint_dir), list(rendezvous)]
    if launch.measure is not None:
        blocks.append(_measured_step(launch.measure, node, launch.vendor))
    blocks.append(_run(launch, waits))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def probe_script(launch: Launch, *, folder: str, starts: Sequence[str] = (), prefix: str = "", options: str = "", first: str = "") -> str:
    """Shell lines: a probe of the worksheet on every node; the first one tells of all, and leaves the record.

    Args:
        launch: what is probed
        folder: a shell word, the folder that survives
        starts: lines before the probe
        prefix: of the command line, which starts it on every node where the script runs on one
        options: by which nodes find each other where no launcher says it
        first: a line to begin with
    """
    words = " ".join(word for word in ("fullstep probe - --evidence", '"$EVIDENCE_DIR"', options, launch.probe or "") if word)
    lines = [
        "set -euo pipefail",
        *([first] if first else []),
        "",
        "# Real steps of the worksheet. What they show is a record in EVIDENCE_DIR: fullstep evidence list shows it, and",
        "# fullstep estimate --evidence lets it outrank the estimate.",
        f"export EVIDENCE_DIR={folder}/probe-records",
        'mkdir -p "$EVIDENCE_DIR"',
        *starts,
        f"worksheet={quote(launch.worksheet)}",
        f'{prefix}{words} <<< "$worksheet"',
    ]
    return "\n".join(lines) + "\n"


def _checkpoints(launch: Launch, checkpoint_dir: str) -> list[str]:
    if launch.finished_file is None:
        newest = """find "$CHECKPOINT_DIR" -mindepth 1 -maxdepth 1 -type d -name '*[0-9]' ! -name 'tmp*'"""
        what = [
            "# RESUME_FROM is the newest checkpoint there, empty at the first start: the folder with the highest number at its end.",
            "# One that was cut off is not told from a whole one: write a checkpoint under another name and rename it at last.",
        ]
    else:
        found = f"-type f -name {launch.finished_file} -path '*[0-9]/*'"
        newest = f"""find "$CHECKPOINT_DIR" -name measured-step -prune -o {found} -printf '%h\\n'"""
        what = [
            "# RESUME_FROM is the newest whole checkpoint there, empty at the first start: the folder with the highest number",
            f"# that holds {launch.finished_file}, which is written last.",
        ]
    return [
        f"# CHECKPOINT_DIR is where your command has to save, every {launch.save_minutes:g} minutes, and to keep the newest {launch.keep}.",
        *what,
        f"export CHECKPOINT_DIR={checkpoint_dir}",
        'export MEASURE_DIR="$CHECKPOINT_DIR/measured-step"',
        'mkdir -p "$MEASURE_DIR"',
        f"RESUME_FROM=$({newest} | sort -V | tail -n 1)",
        "export RESUME_FROM",
    ]


def _measured_step(measure: str, node: str, vendor: str) -> list[str]:
    tool = "nvidia-smi shows" if vendor == "NVIDIA" else f"nvidia-smi would show, which {vendor} has not: take it from its own tool"
    return [
        "# A few steps first. What they show belongs into [measured] of the worksheet, where it outranks the estimate:",
        f"#   device_peak_gib  what {tool}",
        "#   step_seconds     of one optimizer step, from the output of your command, the first step left out",
        "# The output stays in MEASURE_DIR. Where this fails, the long run does not start.",
        "measured_step() {",
        f"    local began=$SECONDS memory=$MEASURE_DIR/memory-{node}.csv",
        "    part=measure",
        f"    port={MEASURE_PORT}",
        "    sampler=",
        "    if command -v nvidia-smi > /dev/null; then",
        '        nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits --loop-ms=200 > "$memory" &',
        "        sampler=$!",
        """        trap 'kill "$sampler" 2> /dev/null || true' EXIT""",
        "    fi",
        f'    on_all_gpus {measure} 2>&1 | tee "$MEASURE_DIR/output-{node}.log"',
        '    echo "For [measured] of the worksheet ($((SECONDS - began)) s, start included):"',
        '    if [ -n "$sampler" ]; then',
        '        kill "$sampler" 2> /dev/null || true',
        "        trap - EXIT",
        """        awk -F ', *' '$2 > most { most = $2 } END { printf "device_peak_gib = %.2f\\n", most / 1024 }' "$memory\"""",
        "    fi",
        '    echo "step_seconds = (of one step, from the output above, the first step left out)"',
        "}",
    ]


def _run(launch: Launch, waits: bool) -> list[str]:
    skips = [
        'if [ -n "$RESUME_FROM" ]; then',
        '    echo "Going on from $RESUME_FROM; the short step is left out."',
        *([] if launch.measure is None else ["else", "    measured_step"]),
        "fi",
    ]
    example = ["# This command is an example. Replace it with yours: whatever stands behind torchrun."] if launch.is_placeholder else []
    command = f"on_all_gpus {launch.command}"
    started = ["{", f"    {command}", "} &", "running=$!", 'wait "$running"'] if waits else [command]
    return [*skips, "", "part=run", f"port={RUN_PORT}", *example, *started]
