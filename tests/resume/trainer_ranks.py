"""A run of transformers' Trainer by torchrun, which stops after a step or goes on from the newest sealed checkpoint.

python -m torch.distributed.run --nproc-per-node 2 tests/resume/trainer_ranks.py FOLDER LAST_STEP
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers

from fullstep.resume import SealedCheckpoints


class _Stops(transformers.TrainerCallback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_training_stop = state.global_step == self._step
        return control


def main(folder: Path, last_step: int) -> None:
    """Leaves the weights of each rank beside the checkpoints."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, attention_dropout=0.1))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (40, 8), generator=torch.Generator().manual_seed(1))]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=2, save_strategy="steps", save_steps=2, report_to=[],
        use_cpu=True, disable_tqdm=True, learning_rate=1e-2, ddp_backend="gloo",
    )  # fmt: skip
    sealed = SealedCheckpoints(folder)
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[sealed, _Stops(last_step)])
    trainer.train(resume_from_checkpoint=sealed.newest())
    torch.save((trainer.state.global_step, dict(model.state_dict())), folder / f"rank{dist.get_rank()}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
