"""A tiny training that saves, is stopped, and goes on where it was. Needs the extra lab.

    torchrun --nproc-per-node 2 examples/resume_training.py runs/tiny --step-seconds 0.5

Stop it by SIGTERM (``kill`` of torchrun), and start it again with the same line: it prints the losses that it would have printed.
``fullstep drill -- torchrun --nproc-per-node 2 examples/resume_training.py {CHECKPOINT_DIR} --step-seconds 0.1`` kills it instead.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fullstep.resume import Checkpoints, DataOrder

ROWS, ROWS_PER_STEP, SAVE_EVERY = 256, 16, 10


def main() -> int:
    """Trains up to the last step, or until it is asked to stop; 143 then: not finished, start it again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="of the checkpoints, seen by all ranks")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="pause after each step, so that there is time to stop it")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    dist.init_process_group("gloo")
    try:
        return train(arguments.folder, arguments.steps, arguments.step_seconds)
    finally:
        dist.destroy_process_group()


def train(folder: str, steps: int, step_seconds: float) -> int:
    """Every rank does the same; rank 0 prints."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = torch.randn(ROWS, 8)
    truth = data.sum(dim=1, keepdim=True).sin()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order = DataOrder(rows=ROWS, rows_per_step=ROWS_PER_STEP, seed=0)
    with Checkpoints(folder, model=model, optimizer=optimizer, scheduler=scheduler, loader=order, keep=2) as checkpoints:
        step = checkpoints.resume()
        if rank == 0 and step:
            print(f"goes on after step {step} of {steps}", flush=True)
        while step < steps:
            rows = order.next(rank, ranks)
            loss = nn.functional.mse_loss(model(data[rows]), truth[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            total = loss.detach().clone()
            dist.all_reduce(total)
            if rank == 0:
                print(f"step {step} loss {total.item() / ranks:.9f}", flush=True)
            time.sleep(step_seconds)
            if step % SAVE_EVERY == 0 or step == steps or checkpoints.must_stop():
                checkpoints.save(step)
            if checkpoints.stopping and step < steps:
                return 128 + signal.SIGTERM
    return 0


if __name__ == "__main__":
    sys.exit(main())
