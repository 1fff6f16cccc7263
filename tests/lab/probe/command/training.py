"""A small training on processors, for commands that are watched: python training.py STEPS [how]."""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> None:
    """Trains; what goes wrong on purpose goes wrong in the third step."""
    import torch  # noqa: PLC0415 - as programs do that are watched

    steps, how = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    halves = list(model.parameters())
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(halves)]
    if how in ("two", "critic"):
        optimizers = [torch.optim.AdamW(halves[:2]), torch.optim.SGD(halves[2:], 1e-3)]
    for step in range(1, steps + 1):
        if step == 3 and int(os.environ.get("RANK", "0")) == ranks - 1:
            go_wrong(how)
        for _ in range(2 if how == "accumulates" else 1):
            model(torch.randn(8, 64)).square().mean().backward()
        for optimizer in optimizers[: 1 if how == "critic" and step % 3 else None]:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
    print("the end of the program", flush=True)


def go_wrong(how: str) -> None:
    """In one of several ways."""
    import torch  # noqa: PLC0415

    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        time.sleep(600)
    if how == "fails":
        raise ValueError("a fault of its own")
    if how == "memory":
        torch.empty(1 << 50)
    if how == "grows":  # into whatever limit there is
        held = []
        while True:
            held.append(torch.empty(1 << 26))
    if how == "catches":
        try:
            torch.empty(1 << 50)
        except RuntimeError as error:
            print(error)


if __name__ == "__main__":
    main()
