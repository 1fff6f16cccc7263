"""The functions that a program may call. Everything else may change without notice.

>>> from fullstep.api import estimate, worksheet_from_mapping
>>> sheet = worksheet_from_mapping({"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": {"gpu": "H100-SXM", "gpus": 8}})
>>> estimate(sheet).parameters
8030261248
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fullstep.api.answer import compare as compare
    from fullstep.api.answer import estimate as estimate
    from fullstep.api.checkpoints import checkpoint_of as checkpoint_of
    from fullstep.api.data import profile_data as profile_data
    from fullstep.api.drilled import drill as drill
    from fullstep.api.linked import link as link
    from fullstep.api.prices import renter_of as renter_of
    from fullstep.api.probed import probe as probe
    from fullstep.api.search import largest as largest
    from fullstep.api.search import plan as plan
    from fullstep.api.sellers import compare_offers as compare_offers
    from fullstep.api.sellers import offers as offers
    from fullstep.api.sellers import refresh_offers as refresh_offers
    from fullstep.api.traced import trace as trace
    from fullstep.job import read_worksheet as read_worksheet
    from fullstep.job import worksheet_from_mapping as worksheet_from_mapping

_HOMES = {
    "checkpoint_of": "fullstep.api.checkpoints",
    "compare": "fullstep.api.answer",
    "compare_offers": "fullstep.api.sellers",
    "drill": "fullstep.api.drilled",
    "estimate": "fullstep.api.answer",
    "largest": "fullstep.api.search",
    "link": "fullstep.api.linked",
    "offers": "fullstep.api.sellers",
    "plan": "fullstep.api.search",
    "probe": "fullstep.api.probed",
    "profile_data": "fullstep.api.data",
    "read_worksheet": "fullstep.job",
    "refresh_offers": "fullstep.api.sellers",
    "renter_of": "fullstep.api.prices",
    "trace": "fullstep.api.traced",
    "worksheet_from_mapping": "fullstep.job",
}
"""where each function lives: it is imported when it is first asked for, so that an estimate does not load the search"""

__all__ = [
    "checkpoint_of", "compare", "compare_offers", "drill", "estimate", "largest", "link", "offers", "plan", "probe", "profile_data",
    "read_worksheet", "refresh_offers", "renter_of", "trace", "worksheet_from_mapping",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    function = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return function


def __dir__() -> list[str]:
    return __all__
