"""Where the prices of a provider can be fetched: ways in the order in which they are tried, and keys that they need."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import date
from importlib.util import find_spec
from typing import NamedTuple

from fullstep.offers.live.answers import Parsed
from fullstep.offers.live.azure import fetch_azure
from fullstep.offers.live.gpuhunt_process import Workers
from fullstep.offers.live.runpod import fetch_runpod
from fullstep.offers.live.transport import Deadline
from fullstep.offers.live.vast import fetch_vast

EXTRA = "pip install 'fullstep[live]'"


class Way(NamedTuple):
    """One way to the prices of a provider."""

    name: str
    """whom it asks"""
    fetch: Callable[[Workers, Deadline, date], Parsed]
    needs_extra: bool = False
    """the extra live, which is gpuhunt"""


class LiveSource(NamedTuple):
    """A provider whose prices can be fetched."""

    ways: tuple[Way, ...]
    keys: tuple[str, ...] = ()
    """environment variables without which it answers nobody"""

    def missing(self) -> str:
        """What would have to be there first; "": nothing."""
        if all(way.needs_extra for way in self.ways) and not has_gpuhunt():
            return f"needs the extra live: {EXTRA}"
        unset = [key for key in self.keys if not os.environ.get(key)]
        return f"needs {', '.join(unset)} in the environment" if unset else ""

    def usable(self) -> tuple[Way, ...]:
        """The ways that are open."""
        return tuple(way for way in self.ways if not way.needs_extra or has_gpuhunt())


def has_gpuhunt() -> bool:
    """Whether the extra is installed; does not import it."""
    return find_spec("gpuhunt") is not None


def live_sources() -> Mapping[str, LiveSource]:
    """All of them by provider.

    AWS's own price list is several hundred megabytes for one region, so that AWS is left to gpuhunt, whose file is made from it.

    >>> live_sources()["vast"].ways[0].name, live_sources()["crusoe"].keys[0]
    ('console.vast.ai', 'CRUSOE_ACCESS_KEY')
    """
    return {
        "vast": LiveSource((_direct("console.vast.ai", fetch_vast), _gpuhunt("vastai", "vast"))),
        "runpod": LiveSource((_direct("api.runpod.io", fetch_runpod), _gpuhunt("runpod"))),
        "azure": LiveSource((_direct("prices.azure.com", fetch_azure), _gpuhunt("azure"))),
        "aws": LiveSource((_gpuhunt("aws"),)),
        "gcp": LiveSource((_gpuhunt("gcp"),)),
        "oci": LiveSource((_gpuhunt("oci"),)),
        "lambda": LiveSource((_gpuhunt("lambdalabs", "lambda"),)),
        "nebius": LiveSource((_gpuhunt("nebius"),)),
        "verda": LiveSource((_gpuhunt("verda"),)),
        "vultr": LiveSource((_gpuhunt("vultr"),)),
        "cloudrift": LiveSource((_gpuhunt("cloudrift"),)),
        "lium": LiveSource((_gpuhunt("lium"),)),
        "crusoe": LiveSource((_gpuhunt("crusoe"),), ("CRUSOE_ACCESS_KEY", "CRUSOE_SECRET_KEY", "CRUSOE_PROJECT_ID")),
        "digitalocean": LiveSource((_gpuhunt("digitalocean"),), ("DIGITAL_OCEAN_API_KEY",)),
        "hotaisle": LiveSource((_gpuhunt("hotaisle"),), ("HOTAISLE_API_KEY", "HOTAISLE_TEAM_HANDLE")),
        "jarvislabs": LiveSource((_gpuhunt("jarvislabs"),), ("JL_API_KEY",)),
        "seeweb": LiveSource((_gpuhunt("seeweb"),), ("SEEWEB_API_TOKEN",)),
    }


def _direct(host: str, fetch: Callable[[Deadline, date], Parsed]) -> Way:
    return Way(host, lambda _, deadline, today: fetch(deadline, today))


def _gpuhunt(name: str, provider: str = "") -> Way:
    return Way("gpuhunt", lambda workers, deadline, today: workers.ask(name, provider or name, deadline, today), needs_extra=True)
