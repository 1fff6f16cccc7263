"""Saving and restoring beside what the same disk gives to plain writers and readers, in one run: `make bench-checkpoints`.

Two ranks hold a sharded state. In each round, as many plain writers as ranks write the same number of bytes that do not compress, and sync
them to disk; then each way of saving does. The first round is left out of all figures: the disk is touched for the first time, staging
memory is made. Before anything is read, its pages are dropped. Medians over the rounds; ratios count, seconds are this machine's.

    python benchmarks/checkpoints.py [FOLDER] [--rounds 7] [--million-parameters 50]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

_RANKS = 2
_BLOCK = 1 << 23
_WIDTH = 2048
Times = dict[str, list[float]]


def main() -> None:
    """Starts the ranks, or is one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="on the disk that is measured; a temporary one otherwise")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--million-parameters", type=int, default=50)
    options = parser.parse_args()
    if "RANK" in os.environ:
        _measure(options.folder, options.rounds, options.million_parameters)
        return
    with tempfile.TemporaryDirectory(prefix="fullstep-bench-", dir=options.folder) as room:
        sizes = [f"--rounds={options.rounds}", f"--million-parameters={options.million_parameters}"]
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={_RANKS}", __file__, room, *sizes]
        subprocess.run(launcher, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        _print_table(json.loads(Path(room, "times.json").read_text()))


def _print_table(found: dict[str, Any]) -> None:
    size, times = found["bytes"], {name: median(values[1:]) for name, values in found["times"].items()}
    raw, read, save, bare = times["raw write"], times["raw read"], times["sync"], times["sync, no digests"]
    rows = [
        ("raw write", raw, "", ""),
        ("save, torch's own writer", times["torch"], f"{raw / times['torch']:.2f} x of raw write", ""),
        ("save, without digests", bare, f"{raw / bare:.2f} x of raw write", "at least 0.75, aim 0.90"),
        ("save", save, f"{raw / save:.2f} x of raw write", ""),
        ("cost of digests", save - bare, f"{save / bare - 1:+.0%} of the save", ""),
        ("stall, thread", times["thread"], f"{times['thread'] / save:.0%} of the save", "at most 20 %"),
        ("stall, process", times["process"], f"{times['process'] / save:.0%} of the save", "at most 20 %"),
        ("raw read", read, "", ""),
        ("load with torch's own reader, cold", times["load with torch"], f"{read / times['load with torch']:.2f} x of raw read", ""),
        ("load, cold", times["load"], f"{read / times['load']:.2f} x of raw read", "at least 0.80"),
        ("verifying digests, cold", times["verify"], f"{read / times['verify']:.2f} x of raw read", ""),
        ("verifying, then loading", times["verify and load"], f"{read / times['verify and load']:.2f} x of raw read", ""),
    ]
    print(f"{size / 1e9:.2f} GB by {_RANKS} ranks; raw write {size / raw / 1e9:.2f} GB/s, raw read {size / read / 1e9:.2f} GB/s\n")
    print("| what | seconds | beside | wanted |\n|---|---|---|---|")
    for what, seconds, beside, wanted in rows:
        print(f"| {what} | {seconds:.2f} | {beside} | {wanted} |")


def _measure(room: Path, rounds: int, million_parameters: int) -> None:
    import torch  # noqa: PLC0415 - in the ranks alone
    import torch.distributed as dist  # noqa: PLC0415

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model, optimizer = _trained(million_parameters)
    bench = _Bench(room, model, optimizer)
    for number in range(rounds):
        bench.write_raw(number)
        bench.save_with_torch(number)
        for name in ("sync, no digests", "sync", "thread", "process"):
            bench.save(name, number)
        bench.read(number)
    bench.end()
    dist.destroy_process_group()


def _trained(million_parameters: int) -> tuple[Any, Any]:
    """A sharded model after one step."""
    import torch  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    layers = max(1, round(million_parameters * 1e6 / _WIDTH**2))
    model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(layers)))
    mesh = init_device_mesh("cpu", (_RANKS,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(1, _WIDTH)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


class _NoDigest:
    """Stands in for SHA-256, to see what that costs."""

    def update(self, _data: Any) -> None:
        pass

    def hexdigest(self) -> str:
        return ""


class _Bench:
    def __init__(self, room: Path, model: Any, optimizer: Any) -> None:
        import torch.distributed as dist  # noqa: PLC0415

        from fullstep.resume import Checkpoints  # noqa: PLC0415

        self._dist, self._room, self._rank = dist, room, dist.get_rank()
        self._model, self._optimizer = model, optimizer
        self._ways: dict[str, Any] = {
            name: Checkpoints(room / name, model=model, optimizer=optimizer, mode=mode, keep=1, signals=())  # type: ignore[arg-type]
            for name, mode in (("sync, no digests", "sync"), ("sync", "sync"), ("thread", "thread"), ("process", "process"))
        }
        self._times: Times = {}
        self._bytes = 12 * sum(parameter.numel() for parameter in model.parameters())
        self._junk = os.urandom(_BLOCK)

    def _timed(self, name: str, act: Callable[[], Any], seconds: Callable[[Any], float] | None = None) -> Any:
        """Of the slowest rank."""
        self._dist.barrier()
        begun = time.perf_counter()
        found = act()
        mine = time.perf_counter() - begun if seconds is None else seconds(found)
        everywhere: list[Any] = [None] * _RANKS
        self._dist.all_gather_object(everywhere, mine)
        self._times.setdefault(name, []).append(max(everywhere))
        return found

    def _raw(self) -> Path:
        return self._room / f"raw-{self._rank}"

    def write_raw(self, number: int) -> None:
        def write() -> None:
            with self._raw().open("wb", buffering=0) as file:
                left = self._bytes // _RANKS
                while left > 0:
                    left -= file.write(self._junk[: min(left, _BLOCK)])
                os.fsync(file.fileno())

        self._timed("raw write", write)

    def save_with_torch(self, number: int) -> None:
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415
        from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: PLC0415

        def save() -> None:
            model, optimizer = get_state_dict(self._model, self._optimizer)
            dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=self._room / f"torch-{number}")

        self._timed("torch", save)
        self._dist.barrier()
        if self._rank == 0:
            shutil.rmtree(self._room / f"torch-{number}")

    def save(self, name: str, number: int) -> None:
        stream: Any = import_module("fullstep.resume.stream")
        if name == "sync, no digests":
            stream.hashlib = SimpleNamespace(sha256=_NoDigest)
        try:
            self._timed(name, lambda: self._ways[name].save(number), None if "sync" in name else lambda saved: saved.stall_seconds)
            self._ways[name].finish()
        finally:
            stream.hashlib = hashlib
        if name == "thread" and self._rank == 0:
            os.sync()

    def read(self, number: int) -> None:
        import torch.distributed.checkpoint as dcp  # noqa: PLC0415

        self._drop()
        self._timed("raw read", self._read_raw)
        self._drop()
        loaded = self._timed("verify and load", self._ways["sync"].load)
        self._times.setdefault("verify", []).append(loaded.verify_seconds)
        self._drop()
        from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: PLC0415

        model, optimizer = get_state_dict(self._model, self._optimizer)
        state = {"model": model, "optimizer": optimizer}
        folder = self._room / "sync" / loaded.folder
        self._timed("load with torch", lambda: dcp.load(state, checkpoint_id=folder))
        self._drop()
        reader = import_module("fullstep.resume.reading").DirectReader(folder)
        self._timed("load", lambda: dcp.load(state, storage_reader=reader))

    def _read_raw(self) -> None:
        buffer = bytearray(_BLOCK)
        with self._raw().open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    def _drop(self) -> None:
        """What was written is taken out of memory, so that it is read from the disk."""
        self._dist.barrier()
        if self._rank == 0:
            os.sync()
            for each in self._room.rglob("*"):
                if each.is_file():
                    handle = os.open(each, os.O_RDONLY)
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(handle)
        self._dist.barrier()

    def end(self) -> None:
        for way in self._ways.values():
            way.close()
        if self._rank == 0:
            (self._room / "times.json").write_text(json.dumps({"bytes": self._bytes, "times": self._times}))


if __name__ == "__main__":
    main()
