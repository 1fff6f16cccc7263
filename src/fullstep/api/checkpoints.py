"""One worksheet's checkpoints by themselves, to be put beside checkpoints that were made."""

from __future__ import annotations

from fullstep.job import Worksheet, complete
from fullstep.ledger import Checkpoint, Container
from fullstep.plan.checkpoints import size_checkpoint


def checkpoint_of(worksheet: Worksheet, container: Container | None = None) -> Checkpoint:
    """What one checkpoint of a worksheet holds and takes: bytes by content, files, seconds of a save, a stall and a restore.

    Args:
        worksheet: as written
        container: in which form it is saved; None: as the worksheet's framework does; "distributed": by a training loop that hands model,
            optimizer, scheduler, the position in the data and each rank's RNG to torch.distributed.checkpoint

    Returns:
        sizes in bytes, times in seconds; times are None where the worksheet does not say what storage does

    Raises:
        InputError: the worksheet is at fault, or (UnsupportedError) asks for what the formulas do not cover
    """
    return size_checkpoint(complete(worksheet), container)
