"""A small training on processors, resumed from whatever its folder holds. It prints what happens as lines of JSON.

    python -m torch.distributed.run --nproc-per-node 2 tests/resume/training.py FOLDER --mode thread --steps 20 --save-every 5

With RANK unset it is one process without torch.distributed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import faulty

VOCABULARY, ROWS, LENGTH = 50, 20, 17
if __name__ == "__mp_main__":  # a process that saves for a trainer: it imports what its trainer ran
    faulty.install()


def arguments(given: list[str]) -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--mode", choices=("sync", "thread", "process"), default="sync")
    parser.add_argument("--wrap", choices=("fsdp", "ddp", "none"), default="fsdp")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--notice", type=float, default=30.0, help="seconds from SIGTERM until the machine is gone")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each step takes longer")
    parser.add_argument("--go-on", action="store_true", help="after a save that failed")
    parser.add_argument("--no-close", action="store_true", help="end without close()")
    parser.add_argument("--draws", action="store_true", help="each rank draws random numbers after each step, before it is saved")
    parser.add_argument("--no-save", action="store_true", help="never")
    parser.add_argument("--fault-at", type=int, default=-1, help="the faults happen while this step is saved")
    parser.add_argument("--own-loader", action="store_true", help="each rank has a place of its own in the data")
    parser.add_argument("--digest-every", type=int, default=0, help="0: where it saves")
    return parser.parse_args(given)


def say(**event: Any) -> None:
    """On rank 0."""
    if os.environ.get("RANK", "0") == "0":
        say_here(**event)


def say_here(**event: Any) -> None:
    """On this rank: in one write, so that lines of several ranks do not mix."""
    os.write(1, (json.dumps(event) + "\n").encode())


def main(given: list[str]) -> None:
    """Trains."""
    faulty.install()
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    wanted = arguments(given)
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo", init_method=os.environ.get("INIT_METHOD", "env://"), **_who())
    try:
        _train(wanted)
    finally:
        if dist.is_initialized() and not wanted.no_close:
            dist.destroy_process_group()


def _who() -> dict[str, int]:
    return {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])} if "INIT_METHOD" in os.environ else {}


def built(width: int, wrap: str) -> tuple[Any, Any, Any]:
    """Model, optimizer and scheduler, the same in every process."""
    import torch  # noqa: PLC0415

    rank = int(os.environ.get("RANK", "0"))
    random.seed(rank)
    torch.manual_seed(0)
    layers = [torch.nn.Embedding(VOCABULARY, width), torch.nn.Linear(width, 4 * width), torch.nn.Dropout(0.1)]
    model: Any = torch.nn.Sequential(*layers, torch.nn.Linear(4 * width, VOCABULARY))
    if wrap == "fsdp":
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        for layer in (model[1], model[3], model):
            fully_shard(layer)
    elif wrap == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    torch.manual_seed(100 + rank)
    return model, optimizer, scheduler


def _train(wanted: argparse.Namespace) -> None:
    from fullstep.resume import Checkpoints, DataOrder, SaveError  # noqa: PLC0415

    model, optimizer, scheduler = built(wanted.width, wanted.wrap)
    order = DataOrder(ROWS, 4, seed=1)
    if wanted.own_loader:
        order.same_on_all_ranks = False  # type: ignore[misc]
    checkpoints = Checkpoints(
        wanted.folder, model=model, optimizer=optimizer, scheduler=scheduler, loader=order, keep=wanted.keep, mode=wanted.mode,
        notice_seconds=wanted.notice,
    )  # fmt: skip
    step = checkpoints.resume()
    loaded = checkpoints.loaded
    skipped = [list(each) for each in loaded.skipped] if loaded else []
    say(resumed=step, folder=loaded.folder if loaded else None, skipped=skipped, rng=loaded.rng if loaded else None)
    if step:
        say(step=step, digest=digest(checkpoints))
        say(step=step, shared=digest(checkpoints, of_all_ranks=True))
    while step < wanted.steps:
        step += 1
        _step(step, model, (optimizer, scheduler), order, (checkpoints.rank, checkpoints.ranks))
        time.sleep(wanted.pause)
        if wanted.draws:
            say(step=step, shared=digest(checkpoints, of_all_ranks=True))
            say_here(step=step, rank=checkpoints.rank, draws=_draws())
        stop = checkpoints.must_stop()
        due = (step % wanted.save_every == 0 or step == wanted.steps or stop) and not wanted.no_save
        if step % (wanted.digest_every or wanted.save_every) == 0 or due:
            say(step=step, digest=digest(checkpoints))
        if due:
            try:
                _save(checkpoints, step, wanted.fault_at)
            except SaveError as error:
                say_here(step=step, rank=checkpoints.rank, failed=str(error))
                if not wanted.go_on:
                    raise
        if stop:
            say(step=step, stopped=str(checkpoints.notice), suffices=getattr(checkpoints.notice, "suffices", None))
            break
    if not wanted.no_close:
        checkpoints.close()
        say(closed=step)
    else:
        say(ended=step)
        _KEPT.append(checkpoints)


_KEPT: list[Any] = []


def _save(checkpoints: Any, step: int, fault_at: int) -> None:
    if step == fault_at:
        checkpoints.finish()  # the save before is not meant
    with _flag(step == fault_at):
        say(step=step, saving=True)
        saved = checkpoints.save(step)
        say(step=step, staged=saved.folder, published=saved.published, waited=saved.waited_seconds > 0)
        if step == fault_at:
            checkpoints.finish()


def _flag(here: bool) -> Any:
    """The faults that wait for a file happen inside."""
    name = json.loads(os.environ.get("FAULTS", "{}")).get("while")
    return _Flag(Path(name)) if here and name else nullcontext()


class _Flag:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._path.touch()

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)


def _step(step: int, model: Any, optimizing: tuple[Any, Any], order: Any, who: tuple[int, int]) -> None:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    optimizer, scheduler = optimizing
    rows = order.next(*who)
    data = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))[rows]
    lr = scheduler.get_last_lr()[0]
    loss = torch.nn.functional.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    whole = loss.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(whole)
    say(step=step, loss=whole.item(), lr=lr, rows=rows)


def digest(checkpoints: Any, of_all_ranks: bool = False) -> str:
    """Of the whole state, in one; or of what belongs to no single rank."""
    found = sorted(item for item in checkpoints.digests().items() if not (of_all_ranks and ".rank" in item[0]))
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def _draws() -> list[float]:
    """Random numbers of this rank."""
    import torch  # noqa: PLC0415

    return [torch.rand(1).item(), random.random()]


if __name__ == "__main__":
    main(sys.argv[1:])
