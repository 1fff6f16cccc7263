"""What a job uses, at one end of its bounds: the hours, the disk and what is taken out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One run on all of its machines [s], and what it stores [GB, 10^9 bytes]."""

    steps_seconds: float
    """all optimizer steps, without evaluation and saves"""
    evaluation_seconds: float
    save_seconds: float
    """for which one save holds training up"""
    write_seconds: float
    """until a save is on disk"""
    last_save_seconds: float
    """of the save at the end of a run, beside which nothing is computed"""
    interval_seconds: float
    """of training between two saves"""
    start_seconds: float
    """from the order to a machine that can be used"""
    install_seconds: float
    """image and libraries; a machine that was only stopped has them"""
    download_seconds: float
    """the model's weights"""
    load_seconds: float
    """weights from disk onto the GPUs"""
    restore_seconds: float
    """the checkpoint from disk"""
    disk_gb: float
    """weights, the checkpoints that are kept, the one that is being written, the result"""
    result_gb: float
    """what is taken out at the end of a run"""
    runs: int = 1
    idle_seconds: float = 0.0
    """between two runs"""

    @property
    def work_seconds(self) -> float:
        """Of one run, without the saves that are made on the way [s]."""
        return self.steps_seconds + self.evaluation_seconds + self.last_save_seconds

    @property
    def setup_seconds(self) -> float:
        """Until the first step on a new machine [s]."""
        return self.start_seconds + self.install_seconds + self.download_seconds + self.load_seconds

    @property
    def resume_seconds(self) -> float:
        """Until the next step on a machine that was stopped, its disk kept [s]."""
        return self.start_seconds + self.load_seconds

    @property
    def restart_seconds(self) -> float:
        """Until the next step on another machine, which finds nothing but the checkpoint [s]."""
        return self.setup_seconds + self.restore_seconds
