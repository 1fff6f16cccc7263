"""Checkpoints that come back: a library for one's own training, on top of torch.distributed.checkpoint.

::

    from fullstep.resume import Checkpoints, DataOrder

    order = DataOrder(rows=len(dataset), rows_per_step=64, seed=0)
    checkpoints = Checkpoints("runs/a", model=model, optimizer=optimizer, scheduler=scheduler, loader=order, keep=2)
    step = checkpoints.resume()                 # of the newest whole checkpoint; 0: there is none
    while step < steps:
        train_on(order.next(rank, ranks))
        step += 1
        if step % 500 == 0 or checkpoints.must_stop():
            checkpoints.save(step)
        if checkpoints.stopping:
            break
    checkpoints.close()

Importing this package loads no torch; its parts are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fullstep.resume.checkpoints import Checkpoints
    from fullstep.resume.digests import state_digests
    from fullstep.resume.errors import LoadError, ResumeError, SaveError
    from fullstep.resume.export import export_model
    from fullstep.resume.folders import Found, checkpoints_in
    from fullstep.resume.manifest import Manifest, StoredFile, read_manifest
    from fullstep.resume.order import DataOrder
    from fullstep.resume.records import Loaded, Saved
    from fullstep.resume.trainer import SealedCheckpoints

_HOME = {
    "Checkpoints": "checkpoints",
    "DataOrder": "order",
    "Found": "folders",
    "LoadError": "errors",
    "Loaded": "records",
    "Manifest": "manifest",
    "ResumeError": "errors",
    "SaveError": "errors",
    "Saved": "records",
    "SealedCheckpoints": "trainer",
    "StoredFile": "manifest",
    "checkpoints_in": "folders",
    "export_model": "export",
    "read_manifest": "manifest",
    "state_digests": "digests",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"fullstep.resume.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fullstep.resume' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOME)


__all__ = [
    "Checkpoints",
    "DataOrder",
    "Found",
    "LoadError",
    "Loaded",
    "Manifest",
    "ResumeError",
    "SaveError",
    "Saved",
    "SealedCheckpoints",
    "StoredFile",
    "checkpoints_in",
    "export_model",
    "read_manifest",
    "state_digests",
]
