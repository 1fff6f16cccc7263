"""Trace every causal language model class of transformers by its default config: validation/trace_coverage.json and docs/trace_coverage.md.

python tools/write_trace_coverage.py             every class, cut to two blocks: a quarter of an hour; needs the extra lab
python tools/write_trace_coverage.py blt jamba   these alone, the others stay as they are in the file
python tools/write_trace_coverage.py --page      the page from the file, without a trace
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from generated_pages import ROOT

from fullstep.lab.trace.front.process import ENVIRONMENT, WORKER
from fullstep.lab.trace.front.wire import Request, encode_request
from fullstep.models import supported_model_types

DATA = ROOT / "validation" / "trace_coverage.json"
PAGE = ROOT / "docs" / "trace_coverage.md"
LIMIT_SECONDS = 300
"""for one class; the recurrent ones, whose kernels are not installed, run a loop over all tokens"""
TOKENS = 128
BLOCKS = 2
COUNTS = ("num_layers_per_stack", "num_hidden_layers", "num_layers", "n_layer", "n_layers", "decoder_layers", "num_decoder_layers")
"""keys under which configs state their number of blocks"""
Row = dict[str, Any]
Data = dict[str, Any]
"""the version of transformers, and a row for each class"""

STATED: Mapping[str, tuple[dict[str, Any], str]] = {
    "cohere_compass_text": (
        {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")}},
        "the default states no rotary parameters, and the class reads those of each kind of layer",
    ),
    "dbrx": ({"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8}}, "the default states neither, and the class reads both"),
    "deepseek_v2": ({"num_experts_per_tok": 6}, "the default is no number"),
    "dots1": (
        {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6, "n_group": 1, "topk_group": 1},
        "the defaults are no numbers",
    ),
    "hunyuan_v1_dense": ({"head_dim": 128}, "the default is no number"),
    "hunyuan_v1_moe": ({"head_dim": 128}, "the default is no number"),
    "gemma3n": ({"text_config": {"num_kv_shared_layers": 0}}, "two blocks have no others whose keys they could share"),
    "gemma3n_text": ({"num_kv_shared_layers": 0}, "two blocks have no others whose keys they could share"),
    "gpt_neo": ({"num_layers": 2, "attention_types": [[["global", "local"], 1]]}, "the default lists 24 layers in short form"),
    "lfm2_moe": ({"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}, "the default is no list"),
    "longcat_flash": ({"n_routed_experts": 64, "zero_expert_num": 32}, "a loop over 768 experts, each by itself, takes minutes"),
    "ministral": ({"head_dim": 128}, "the default is no number"),
    "nemotron": ({"num_key_value_heads": 8}, "the default is no number"),
    "olmo_hybrid": ({"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}, "the first two are of one kind"),
    "reformer": ({"is_decoder": True, "axial_pos_shape": [8, 16]}, f"no encoder is taken, and rows fill the axial positions: {TOKENS}"),
    "xmod": ({"default_language": "en_XX"}, "rows of one language"),
}
"""keys that go beyond the default config, because it alone cannot be built or run, and why"""


class Warm:
    """A worker with its libraries loaded; a trace that takes too long ends it, and the next one starts another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Request) -> Mapping[str, Any]:
        """The worker's answer, or a table with the one key ``late``."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(encode_request(request).encode())
        process.stdin.flush()
        for message in self._messages(process, time.monotonic() + LIMIT_SECONDS):
            if "progress" not in message:
                return message
        self.stop()
        return {"late": True}

    def stop(self) -> None:
        """Ends the worker and the trace that it may be at."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, *WORKER, "--many"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
                env={**os.environ, **ENVIRONMENT}, process_group=0,
            )  # fmt: skip
        return self._process

    @staticmethod
    def _messages(process: subprocess.Popen[bytes], deadline: float) -> Iterator[Mapping[str, Any]]:
        assert process.stdout is not None
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0 and selector.select(left):
                chunk = os.read(process.stdout.fileno(), 2**16)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines)


def config_of_two_blocks(model_type: str) -> dict[str, Any]:
    """The keys that make a model of the class's default config, cut to two blocks, and lists with an entry for each block with it."""
    from transformers import AutoConfig  # noqa: PLC0415

    stated = STATED.get(model_type, ({}, ""))[0]
    try:
        whole = AutoConfig.for_model(model_type, **stated)
        part = whole.get_text_config()
    except Exception:  # the class refuses its own defaults: the trace will say so
        return {"model_type": model_type, **stated}
    keys = part.to_dict()
    name = next((name for name in COUNTS if isinstance(keys.get(name), int)), None)
    cut: dict[str, Any] = {}
    if name is not None and keys[name] > BLOCKS:
        lists = {key: value[:BLOCKS] for key, value in keys.items() if isinstance(value, list) and len(value) == keys[name]}
        cut = {**lists, name: BLOCKS}
    if part is not whole:
        inside = next(name for name in ("text_config", "decoder", "generator", "text_encoder") if getattr(whole, name, None) is part)
        return {"model_type": model_type, **stated, inside: {**cut, **stated.get(inside, {})}}
    return {"model_type": model_type, **cut, **stated}


def language_part(model_type: str, classes: Mapping[str, str]) -> str:
    """The class that stands for a model that takes more than text; empty for the others."""
    from transformers import AutoConfig  # noqa: PLC0415

    try:
        whole = AutoConfig.for_model(model_type)
        part = whole.get_text_config()
    except Exception:  # as above
        return ""
    found = classes.get(part.model_type, "")
    return found if part is not whole and found != classes[model_type] else ""


def traced(model_type: str, classes: Mapping[str, str], warm: Warm) -> Row:
    """One row of the table: what came of tracing the class."""
    config = config_of_two_blocks(model_type)
    worksheet = {"model": {"config": config}, "batch": {"sequence_tokens": TOKENS}, "method": {"kind": "full"}}
    answer = warm.ask(Request(worksheet=worksheet, config=config, name=model_type))
    row: Row = {"model_type": model_type, "class": classes[model_type], "language_part": language_part(model_type, classes)}
    if "trace" in answer:
        keys = ("parameters", "blocks", "allocated_peak_bytes")
        notes = [note["text"] for note in answer["trace"]["notes"]]
        return row | {"outcome": "traced", **{key: answer["trace"][key] for key in keys}, "reason": " ".join(notes)}
    if "late" in answer:
        return row | {"outcome": "too slow", "reason": f"no answer within {LIMIT_SECONDS} s"}
    faults = answer.get("faults") or answer.get("unsupported")
    if faults:
        return row | {"outcome": "refused", "reason": "; ".join(f"{fault['where']}: {fault['found']}" for fault in faults)}
    return row | {"outcome": "crashed", "reason": str(answer["crash"])}


def run(only: Sequence[str]) -> Data:
    """All rows, those of ``only`` (or all) traced anew. Each is kept as soon as it is there."""
    from transformers import __version__  # noqa: PLC0415
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES  # noqa: PLC0415

    rows = {row["model_type"]: row for row in (read()["rows"] if DATA.exists() else ())}
    data: Data = {"transformers": __version__, "rows": []}
    warm = Warm()
    try:
        for model_type in only or CLASSES:
            began = time.monotonic()
            row = rows[model_type] = traced(model_type, CLASSES, warm)
            print(f"{model_type:32} {time.monotonic() - began:5.1f} s  {row['outcome']}  {row['reason'][:200]}", flush=True)
            data["rows"] = [rows[name] for name in CLASSES if name in rows]
            lines = ",\n".join(json.dumps(each) for each in data["rows"])
            DATA.write_text(f'{{"transformers": "{__version__}", "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    finally:
        warm.stop()
    return data


def read() -> Data:
    """What the last run found."""
    data: Data = json.loads(DATA.read_text(encoding="utf-8"))
    return data


def page(data: Data) -> str:
    """The page: how many, which fail and why, what was stated, and all of them."""
    rows = data["rows"]
    good = [row for row in rows if row["outcome"] == "traced"]
    bad = [row for row in rows if row["outcome"] != "traced"]
    known = set(supported_model_types())
    beyond = sum(row["model_type"] not in known for row in good)
    lines = [
        "# Which classes a trace covers",
        "",
        "Written by `make retrace`; do not edit.",
        "",
        f"Every class that transformers {data['transformers']} lists as a causal language model, from its default config",
        f"cut to {BLOCKS} blocks: full fine-tuning in bfloat16 with AdamW, one row of {TOKENS} tokens, two optimizer steps, at most",
        f"{LIMIT_SECONDS} s.",
        f"**{len(good)} of {len(rows)} are traced**, {beyond} of them of model types that the formulas do not cover.",
        "Of a model that takes more than text, the language part is traced.",
        "",
        "## Not traced",
        "",
        "| model type | class | what one is told |",
        "|---|---|---|",
        *(f"| {row['model_type']} | {row['class']} | {_cell(row['reason'])} |" for row in bad),
        "",
        "## Keys stated beside the default config",
        "",
        "| model type | keys | why |",
        "|---|---|---|",
        *(f"| {name} | {', '.join(f'`{key}`' for key in keys)} | {why} |" for name, (keys, why) in STATED.items()),
        "",
        "## Traced",
        "",
        "| model type | class | formulas | parameters (billions) | blocks | peak allocated (GiB) |",
        "|---|---|---|---:|---:|---:|",
    ]
    for row in good:
        formulas = "yes" if row["model_type"] in known else "no"
        sizes = f"{row['parameters'] / 1e9:,.3f} | {row['blocks']} | {row['allocated_peak_bytes'] / 2**30:,.2f}"
        name = f"{row['language_part']}, of {row['class']}" if row["language_part"] else row["class"]
        lines.append(f"| {row['model_type']} | {name} | {formulas} | {sizes} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Trace as asked, and write the page."""
    PAGE.write_text(page(read() if arguments == ["--page"] else run(arguments)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
