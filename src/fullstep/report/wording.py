"""Words for people: instants, holdings, verdicts, and the line that says what a job is."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.job import Job, Settings
from fullstep.quantities import GIB, MIB, Bounds

INSTANTS = {
    "forward": "forward",
    "loss": "loss",
    "backward": "backward",
    "second_forward": "second forward of the accumulation",
    "optimizer_step": "optimizer step",
}
HOLDING_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer_states": "optimizer states",
    "activations": "activations",
    "logits_and_loss": "logits and loss",
    "gathered_parameters": "gathered weights",
    "temporaries": "temporaries",
    "buffers": "buffers",
}
VERDICTS = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit", "unknown": "unknown"}
VERDICT_INK = {"fits": "green", "tight": "yellow", "does_not_fit": "red", "unknown": "yellow"}
_METHODS = {"full": "full fine-tuning", "lora": "LoRA", "qlora": "QLoRA", "dora": "DoRA", "ia3": "IA3", "prefix_tuning": "prefix tuning"}


class Unit(NamedTuple):
    """In which the sizes of a table stand, with one decimal."""

    name: str
    size_bytes: int

    def number(self, size_bytes: float) -> str:
        """Without the unit.

        >>> IN_GIB.number(3 * 2**30), IN_MIB.number(3 * 2**19)
        ('3.0', '1.5')
        """
        return f"{size_bytes / self.size_bytes:,.1f}"

    def sized(self, size_bytes: float) -> str:
        """With the unit."""
        return f"{self.number(size_bytes)} {self.name}"

    def shows(self, size_bytes: float) -> bool:
        """More than 0.0."""
        return self.number(size_bytes) != self.number(0)

    def span(self, bounds: Bounds) -> str:
        """Bounds in bytes as ``low-high``; one number where both round to the same.

        >>> IN_GIB.span(Bounds(2**30, 2**30, 2**31))
        '1.0-2.0'
        """
        low, high = self.number(bounds.low), self.number(bounds.high)
        return low if low == high else f"{low}-{high}"


IN_GIB, IN_MIB = Unit("GiB", GIB), Unit("MiB", MIB)


def unit_of(peak_bytes: float) -> Unit:
    """The one in which a peak and its parts show.

    >>> unit_of(2**30).name, unit_of(2**29).name
    ('GiB', 'MiB')
    """
    return IN_GIB if peak_bytes >= GIB else IN_MIB


def measured_size(size_bytes: float) -> str:
    """A measured size in the largest unit that it reaches, finer than an estimate is.

    >>> measured_size(3 * 2**30), measured_size(5 * 2**20), measured_size(1536)
    ('3.00 GiB', '5.00 MiB', '1.5 KiB')
    """
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:,.2f} GiB"
    return f"{size_bytes / MIB:,.2f} MiB" if size_bytes >= MIB else f"{size_bytes / 2**10:,.1f} KiB"


def gib(size_bytes: float) -> str:
    """Bytes as a bare number of GiB."""
    return IN_GIB.number(size_bytes)


def span(bounds: Bounds) -> str:
    """Bounds in bytes as ``low-high`` in GiB; one number where both round to the same."""
    return IN_GIB.span(bounds)


def model_words(job: Settings) -> str:
    """The model's name; where only its config is stated, the path of that."""
    if isinstance(job, Job):
        return job.shape.name
    model = job.worksheet.section("model")
    config = model.get("config")
    return str(model.get("name") or (config if isinstance(config, str) else "the inline config"))


def headline(job: Settings) -> str:
    """What is trained, how, and on how many rows: the first line of every report."""
    batch, machine, precision = job.batch, job.machine, job.precision
    gpus = machine.gpus * machine.nodes
    rows = f"{batch.sequence_tokens:,} tokens x {batch.micro_batch} row{'s' if batch.micro_batch > 1 else ''}"
    if batch.accumulation > 1:
        rows += f" x {batch.accumulation} accumulated"
    if job.layout.data_parallel > 1:
        rows += f" x {job.layout.data_parallel} ranks"
    elif gpus > 1:
        rows += f" on {gpus} GPUs"
    formats = f"{precision.weights} weights" + (" with fp32 master copy" if precision.master_weights else "")
    if job.method.is_quantized:
        formats = f"{job.method.quantization} base"
    if precision.compute != precision.weights or job.method.is_quantized:
        formats += f", {precision.compute} compute"
    return " · ".join((model_words(job), method_words(job), formats, job.optimizer.name, rows))


def method_words(job: Settings) -> str:
    """The method with its rank where it has one."""
    method = job.method
    words = _METHODS.get(method.kind, method.kind.replace("_", " "))
    if method.is_low_rank:
        words += f" rank {method.rank}"
    elif method.kind == "prefix_tuning":
        words += f" with {method.rank} virtual tokens"
    elif method.kind == "bottleneck":
        words += f" of width {method.rank}"
    return words if method.objective == "sft" else f"{words}, {method.objective}"
