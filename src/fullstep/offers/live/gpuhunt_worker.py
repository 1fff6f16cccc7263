"""A process that asks gpuhunt for one provider and writes JSON on standard output. It is ended from outside, and by itself.

gpuhunt downloads without a limit of time, so that nothing but the end of a process stops it for certain.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

_FIELDS = ("instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot", "disk_size", "flags")
_ASKED_AT_ONCE = {
    "crusoe": "CrusoeProvider",
    "digitalocean": "DigitalOceanProvider",
    "hotaisle": "HotAisleProvider",
    "jarvislabs": "JarvisLabsProvider",
    "lium": "LiumProvider",
    "seeweb": "SeewebProvider",
    "vastai": "VastAIProvider",
    "vultr": "VultrProvider",
}
"""classes of gpuhunt.providers that ask the provider itself; the others have files that are made ready every hour"""


def main(name: str, seconds: float) -> None:
    """Writes ``items``, or ``error`` with the reason."""
    threading.Thread(target=_end_after, args=(seconds,), daemon=True).start()
    socket.setdefaulttimeout(seconds)
    logging.disable(logging.CRITICAL)
    output, sys.stdout = sys.stdout, sys.stderr
    try:
        answer = _asked(name)
    except Exception as error:  # whatever it is, the caller wants it in one line
        cause = error.__cause__ or error
        answer = {"error": f"{type(cause).__name__}: {cause}"[:400]}
    json.dump(answer, output, default=str)
    output.flush()


def _asked(name: str) -> dict[str, Any]:
    gpuhunt = import_module("gpuhunt")
    catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
    if name in _ASKED_AT_ONCE:
        provider = getattr(import_module(f"gpuhunt.providers.{name}"), _ASKED_AT_ONCE[name])
        catalog.add_provider(provider.from_env())
    elif "GPUHUNT_CATALOG_DIR" not in os.environ:
        with suppress(ImportError, AttributeError):  # load() takes all providers, which only costs more
            import_module("gpuhunt._internal.catalog").OFFLINE_PROVIDERS[:] = [name]
        catalog.load()
    answer: dict[str, Any] = {"items": _rows(catalog, name)}
    with suppress(ImportError, AttributeError):
        answer["version"] = import_module("gpuhunt.version").__version__
    return answer


def _rows(catalog: Any, name: str) -> list[dict[str, Any]]:
    items = catalog.query(provider=[name], min_gpu_count=1)
    return [{**{field: getattr(item, field) for field in _FIELDS}, "gpu_vendor": getattr(item.gpu_vendor, "value", None)} for item in items]


def _end_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(3)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
