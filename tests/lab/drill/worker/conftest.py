"""One rank in this process, with a leg of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fullstep.lab.drill.front.seen import Seen, seen_of
from fullstep.lab.drill.leg import Leg, Run

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip
SHEET = {
    "model": {"config": CONFIG}, "method": {"kind": "full"}, "precision": {"weights": "float32", "compute": "float32"},
    "batch": {"sequence_tokens": 32, "micro_batch": 2, "accumulation": 2},
}  # fmt: skip
Ran = Callable[..., tuple[Seen, Any]]


@pytest.fixture(scope="module", autouse=True)
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of one."""
    import torch.distributed as dist  # noqa: PLC0415 - the libraries of the extra lab

    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def leg(tmp_path_factory: pytest.TempPathFactory) -> Leg:
    folder = tmp_path_factory.mktemp("checkpoints")
    return Leg(
        name="test", worksheet=SHEET, config=CONFIG, device="cpu", seed=7, rows=14, rows_per_step=4, folder=str(folder),
        records=str(folder), mode="sync", keep=2, runs=(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran(leg: Leg) -> Ran:
    """A training of the leg, with keys of the leg changed: what was seen, and the training as it ended."""
    import torch  # noqa: PLC0415

    from fullstep.lab.drill.worker.run import go_through  # noqa: PLC0415

    def go(run: Run, **changed: Any) -> tuple[Seen, Any]:
        record, training = go_through(leg._replace(**changed), run, torch.device("cpu"), lambda _: None, {})
        return seen_of([{"runs": [record]}])[run.name], training

    return go
