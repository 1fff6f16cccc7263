"""Saves that are really made, in processes of their own: python real_saves.py KIND FOLDER SIZES (a JSON list), under torchrun for fsdp.

KIND: fsdp and fsdp_lora (torch.distributed.checkpoint), fsdp_by_shards and fsdp_in_full (accelerate's part of what the Trainer saves),
trainer and trainer_lora (transformers' Trainer). Prints nothing; the folder is it.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from peft import LoraConfig, get_peft_model
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def model_of(sizes: list[int], *, lora: bool) -> torch.nn.Module:
    model = LlamaForCausalLM(LlamaConfig(**dict(zip(KEYS, sizes, strict=True)), tie_word_embeddings=False))
    if not lora:
        return model
    return get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


def fsdp(folder: Path, sizes: list[int], kind: str) -> None:
    dist.init_process_group("gloo")
    lora = kind == "fsdp_lora"
    model = model_of(sizes, lora=lora)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = model.get_submodule("base_model.model.model.layers" if lora else "model.layers")
    for block in blocks.children():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(each for each in model.parameters() if each.requires_grad)
    if kind in ("fsdp_by_shards", "fsdp_in_full"):
        by_accelerate(folder, model, optimizer, "SHARDED_STATE_DICT" if kind == "fsdp_by_shards" else "FULL_STATE_DICT")
    else:
        by_torch(folder, model, optimizer, lora=lora)
    dist.destroy_process_group()


def by_torch(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, lora: bool) -> None:
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    weights, states = get_state_dict(model, optimizer, options=StateDictOptions(ignore_frozen_params=lora))
    rng = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    state = {"model": weights, "optimizer": states, "scheduler": scheduler.state_dict(), "step": 3, "position": 192}
    dcp.save({**state, "rng": {f"rank{dist.get_rank()}": rng}}, storage_writer=dcp.FileSystemWriter(folder))


def by_accelerate(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, form: str) -> None:
    """Trainer._save_optimizer_and_scheduler calls these two; the Trainer itself runs FSDP on accelerators only."""
    from accelerate import PartialState  # noqa: PLC0415 (it looks at the processes that are there)
    from accelerate.utils import FullyShardedDataParallelPlugin  # noqa: PLC0415
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer  # noqa: PLC0415

    state = PartialState(cpu=True)
    model(input_ids=torch.arange(16)[None], labels=torch.arange(16)[None]).loss.backward()
    optimizer.step()
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type=form)
    save_fsdp_model(plugin, state, model, str(folder), adapter_only=True)
    save_fsdp_optimizer(plugin, state, optimizer, model, str(folder))


def trainer(folder: Path, sizes: list[int], *, lora: bool) -> None:
    row = {"input_ids": torch.arange(16), "labels": torch.arange(16)}
    settings = TrainingArguments(
        str(folder), max_steps=1, save_steps=1, per_device_train_batch_size=1, report_to=[], use_cpu=True, disable_tqdm=True
    )
    Trainer(model_of(sizes, lora=lora), settings, train_dataset=[row] * 4).train()


def main() -> None:
    kind, folder, sizes = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    if kind.startswith("fsdp"):
        fsdp(folder, sizes, kind)
    else:
        trainer(folder, sizes, lora=kind == "trainer_lora")


if __name__ == "__main__":
    main()
