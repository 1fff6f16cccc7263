"""All units, in the order in which they are made."""

from __future__ import annotations

from fullstep.lab.trace.worker.compat.attention import ATTENTION
from fullstep.lab.trace.worker.compat.autocast import AUTOCAST
from fullstep.lab.trace.worker.compat.capabilities import CAPABILITIES
from fullstep.lab.trace.worker.compat.distributed import DISTRIBUTED
from fullstep.lab.trace.worker.compat.distributions import DISTRIBUTIONS
from fullstep.lab.trace.worker.compat.dropout import FUSED_ON_CUDA
from fullstep.lab.trace.worker.compat.fake_tensors import FAKE_TENSORS
from fullstep.lab.trace.worker.compat.linear_algebra import LINEAR_ALGEBRA
from fullstep.lab.trace.worker.compat.masks import MASKS
from fullstep.lab.trace.worker.compat.peft_values import PEFT_VALUES

UNITS = (
    ATTENTION, FUSED_ON_CUDA, AUTOCAST, LINEAR_ALGEBRA, FAKE_TENSORS, MASKS, DISTRIBUTED, DISTRIBUTIONS, CAPABILITIES, PEFT_VALUES,
)  # fmt: skip
