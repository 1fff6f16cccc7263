"""Predicted sizes against files that torch and transformers write here."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.models import bundled_config, shape_from_config
from fullstep.physics.checkpointing import Written, written
from fullstep.physics.checkpointing.figures import figure
from fullstep.physics.checkpointing.tensors import stored_tensors

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]

Make = Callable[..., Job]
SCRIPT = Path(__file__).parent / "real_saves.py"
SIZES = {"0.6": [128, 384, 2, 4, 752], "27": [512, 1376, 6, 8, 8000]}
LORA = {"kind": "lora", "rank": 16, "targets": ["q_proj", "v_proj"]}


def saved(kind: str, folder: Path, which: str, ranks: int = 1) -> list[Path]:
    """The files of a save that was really made."""
    start = [sys.executable]
    if kind.startswith("fsdp"):
        start += ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"]
    command = [*start, str(SCRIPT), kind, str(folder), json.dumps(SIZES[which])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [path for path in folder.rglob("*") if path.is_file()]


def differs(found: Written, files: list[Path]) -> float:
    """Predicted over real, less 1."""
    assert found.files == len(files), sorted(path.name for path in files)
    return found.size_bytes / sum(path.stat().st_size for path in files) - 1


@pytest.mark.parametrize(("which", "ranks"), [("27", 2)])
def test_distributed_checkpoints(job: Make, small: dict[str, Any], tmp_path: Path, which: str, ranks: int) -> None:
    """Model, optimizer, scheduler, step, position and each rank's RNG: within 1 %. More of them: slow_real_saves.py."""
    made = job(model=small[which], machine={"gpus": ranks}, layout={"strategy": "fsdp"}, step={"framework": "torch"})
    assert abs(differs(written(made, "distributed"), saved("fsdp", tmp_path, which, ranks))) < 0.01


def adapters_distributed(job: Make, small: dict[str, Any], tmp_path: Path) -> None:
    """27 M parameters with an adapter of 0.2: the frozen base is not in it."""
    made = job(
        model=small["27"], method=LORA, precision={}, machine={"gpus": 2}, layout={"strategy": "fsdp"}, step={"framework": "torch"}
    )  # fmt: skip
    assert abs(differs(written(made, "distributed"), saved("fsdp_lora", tmp_path, "27", 2))) < 0.01


def what_accelerate_saves(job: Make, small: dict[str, Any], tmp_path: Path, form: str, files: int) -> None:
    """Two folders of torch.distributed.checkpoint, or two files; without what the Trainer lays beside them: for full its own model file."""
    made = job(model=small["0.6"], machine={"gpus": 2}, layout={"strategy": "fsdp"}, checkpoint={"format": form})
    parts = {part.what: part.size_bytes for part in written(made).parts}
    predicted = parts["weights"] + parts["optimizer_states"] + parts["container"]
    real = saved("fsdp_by_shards" if form == "sharded" else "fsdp_in_full", tmp_path, "0.6", 2)
    assert len(real) == files
    assert predicted == pytest.approx(sum(path.stat().st_size for path in real), rel=1e-3)


def test_a_trainer_s_folder(job: Make, small: dict[str, Any], tmp_path: Path) -> None:
    made = job(model=small["0.6"], machine={"gpus": 1})
    assert abs(differs(written(made), saved("trainer", tmp_path, "0.6"))) < 0.01


def test_a_trainer_s_folder_of_adapters(job: Make, small: dict[str, Any], tmp_path: Path) -> None:
    made = job(model=small["27"], method=LORA, precision={}, machine={"gpus": 1})
    assert abs(differs(written(made), saved("trainer_lora", tmp_path, "27"))) < 0.01


def test_what_torch_save_adds() -> None:
    """One tensor, one number, and each further tensor in one file."""
    import torch  # noqa: PLC0415 (the extra lab)

    def size(value: object) -> int:
        stream = io.BytesIO()
        torch.save(value, stream)
        return len(stream.getvalue())

    archive, record = figure("tensor_archive").value, figure("tensor_record").value
    for elements in (1, 16, 17, 1024, 100_000):
        assert archive.low <= size(torch.zeros(elements)) - 4 * elements <= archive.high
    assert size(0.1) == figure("scalar_archive").value.likely
    hundred = size({f"model.layers.{number}.weight": torch.zeros(1024) for number in range(100)}) - 100 * 4096
    assert record.low <= (hundred - archive.likely) / 99 <= record.high


@pytest.mark.parametrize("name", ["openai-community/gpt2", "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen2.5-7B", "google/gemma-2-9b"])
def test_tensors_are_those_of_the_real_class(job: Make, name: str) -> None:
    import torch  # noqa: PLC0415 (the extra lab)
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    config = {**bundled_config(name), "num_hidden_layers": 2, "n_layer": 2}
    config.pop("layer_types", None)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    real = Counter(parameter.numel() for parameter in model.parameters())
    counted: Counter[int] = Counter()
    for each in stored_tensors(job(model={"config": config}, machine={"gpus": 1})):
        counted[each.elements] += each.copies
    assert shape_from_config(config, name).parameters == sum(size * count for size, count in real.items())
    assert counted == real
