"""Defaults of the section machine: the card from the catalogue, what torch can use of it, and the link inside a node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.hardware import Card, default_link, find_card, usable_bytes
from fullstep.job.defaults.filler import Filler
from fullstep.job.job import Machine
from fullstep.quantities import GB, GIB


@lru_cache(maxsize=512)
def _card_and_usable(name: str) -> tuple[Card, int]:
    card = find_card(name)
    return card, usable_bytes(card)


def machine_of(filler: Filler, values: Mapping[str, Any], gpus: int, nodes: int) -> Machine:
    """The whole section, given how many GPUs and nodes there are."""
    card, total, usable = _memory(filler, values)
    link = values.get("link")
    if link is None and card is not None and gpus > 1:
        link = filler.take(values, "link", "machine.link", default_link(card, gpus), f"how {gpus} {card.key} are usually joined")
    if nodes > 1 and "rdma" not in values:
        filler.take(values, "rdma", "machine.rdma", None, "not stated: sockets as likely, RDMA at best")
    host = values.get("host_memory_gib")
    disk = values.get("disk_gb")
    write, read = values.get("storage_write_gb_s"), values.get("storage_read_gb_s")
    return Machine(
        card=card,
        gpus=gpus,
        nodes=nodes,
        gpu_memory_bytes=total,
        usable_bytes=usable,
        link=link,
        network_gbit_s=values.get("network_gbit_s"),
        rdma=values.get("rdma"),
        host_memory_bytes=None if host is None else round(host * GIB),
        cpu_cores=values.get("cpu_cores"),
        disk_bytes=None if disk is None else round(disk * GB),
        storage_write_bytes_per_second=None if write is None else write * GB,
        storage_read_bytes_per_second=None if read is None else read * GB,
    )


def _memory(filler: Filler, values: Mapping[str, Any]) -> tuple[Card | None, int | None, int | None]:
    card: Card | None = None
    total: int | None = None
    usable: int | None = None
    name = values.get("gpu")
    if name is None:
        filler.take(values, "gpu", "machine.gpu", None, "no GPU is named: the verdict stays open")
    else:
        try:
            card, usable = _card_and_usable(name)
        except InputError as error:
            where = filler.worksheet.where("machine.gpu")
            filler.faults.extend(Fault(where, fault.found, fault.allowed, fault.remedy) for fault in error.faults)
    stated = values.get("gpu_memory_gib")
    if stated is not None:
        total = round(stated * GIB)
        return card, total, usable_bytes(total)
    if card is not None:
        total = card.total_bytes
        why = f"what the driver reports of {card.key}" if card.reported_bytes is not None else f"the marketing size of {card.key}"
        filler.take(values, "gpu_memory_gib", "machine.gpu_memory_gib", round(total / GIB, 2), why)
        if card.reported_bytes is None:
            text = f"what the driver reports for {card.key} is not published: {total / GIB:.1f} GiB taken from its marketing size"
            filler.caution("F009", text)
    return card, total, usable
