"""The functions that a program may call. Everything else may change without notice.

>>> from fullstep.api import estimate, worksheet_from_mapping
>>> sheet = worksheet_from_mapping({"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": {"gpu": "H100-SXM", "gpus": 8}})
>>> estimate(sheet).parameters
8030261248
"""

from fullstep.api.estimate import compare, estimate
from fullstep.api.search import largest, plan
from fullstep.job import read_worksheet, worksheet_from_mapping

__all__ = ["compare", "estimate", "largest", "plan", "read_worksheet", "worksheet_from_mapping"]
