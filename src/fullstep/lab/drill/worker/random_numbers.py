"""Random numbers of a rank, seen by the drill itself and not by the library that saves them."""

from __future__ import annotations

import hashlib
import random
import sys

import torch
import torch.distributed as dist


def seed_all(seed: int) -> None:
    """Every generator of this process that others draw from without asking."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)


def random_digests() -> dict[str, str]:
    """Of every generator of every rank, by name. All ranks must call it."""
    mine = {f"rng.rank{dist.get_rank()}.{name}": digest for name, digest in _digests().items()}
    everywhere: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everywhere, mine)
    return {name: digest for each in everywhere for name, digest in each.items()}


def _digests() -> dict[str, str]:
    """
    >>> seed_all(1)
    >>> before = _digests()
    >>> _ = torch.rand(()), random.random()
    >>> after = _digests()
    >>> before["torch"] == after["torch"], before["python"] == after["python"]
    (False, False)
    """
    states = {"torch": torch.get_rng_state().numpy().tobytes(), "python": repr(random.getstate()).encode()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state().numpy().tobytes()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = f"{kind} {keys.tolist()} {rest}".encode()
    return {name: hashlib.sha256(state).hexdigest() for name, state in states.items()}
