"""``python rank.py RANK INTERFACE``: one of two gloo ranks. Does what it is told on stdin, a JSON object a line, and answers with seconds.

``{"do": "join", "address": ..., "port": ...}``, then any number of
``{"do": "collective", "kind": ..., "payload_bytes": ..., "times": ...}``
and ``{"do": "step", "strategy": "ddp" | "fsdp", "config": {...}, "tokens": ..., "times": ...}``. Ends with its stdin, so that
nothing outlives whoever started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

LATE_SECONDS = 0.01
PATIENCE = timedelta(seconds=120)
Message = dict[str, Any]
Action = Callable[[], object]


def join(message: Message) -> Message:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = sys.argv[2]
    method = f"tcp://{message['address']}:{message['port']}"
    dist.init_process_group("gloo", init_method=method, rank=int(sys.argv[1]), world_size=2, timeout=PATIENCE)
    return {}


def collective(message: Message) -> Message:
    """A collective as nccl-tests count its payload: what a gather ends with, what a reduction starts with."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    count = message["payload_bytes"] // 4
    whole, half = torch.ones(count), torch.ones(count // 2)
    actions: dict[str, Action] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, half),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(half, whole),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty(count), whole),
        "send": lambda: dist.send(whole, 1) if sys.argv[1] == "0" else dist.recv(whole, 0),
    }
    return {"seconds": timed(actions[message["kind"]], message["times"])}


def step(message: Message) -> Message:
    """Optimizer steps of a llama in float32, after one that sets things up."""
    import torch  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(LlamaConfig(**message["config"], use_cache=False))
    run = model
    if message["strategy"] == "fsdp":
        for block in model.model.layers:
            fully_shard(block)
        fully_shard(model)
    else:
        run = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    tokens = torch.randint(0, message["config"]["vocab_size"], (1, message["tokens"]))

    def action() -> None:
        run(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    action()
    if message["strategy"] == "ddp":
        action()  # DDP fills its buckets anew after the first step
    return {"seconds": timed(action, message["times"])}


def timed(action: Action, times: int) -> list[float]:
    """Seconds of each of several runs. As in training one rank is a little later than the other; its seconds count.

    The parent counts bytes between the two lines that tell it so.
    """
    import torch.distributed as dist  # noqa: PLC0415

    dist.barrier()
    say({"begins": True})
    sys.stdin.readline()
    late, seconds = sys.argv[1] == "1", []
    for _ in range(times):
        dist.barrier()
        if late:
            time.sleep(LATE_SECONDS)
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds


def say(message: Message) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Before others on these processors, so that the link and not they decide the time."""
    os.nice(-10)
    say({})
    actions = {"join": join, "collective": collective, "step": step}
    for line in sys.stdin:
        message = json.loads(line)
        say(actions[message["do"]](message))


if __name__ == "__main__":
    main()
