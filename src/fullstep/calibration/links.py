"""Records of links: on which machines they stand for what is assumed of the links, or why on none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fullstep.evidence import Assumption
from fullstep.hardware import cards_named, default_node
from fullstep.hardware.measured_line import MeasuredLine
from fullstep.job import Job
from fullstep.job.job import Machine
from fullstep.ledger.link import LINK_COLLECTIVES, LinkFit, MeasuredLink
from fullstep.quantities import GBIT_BYTES, Bounds

NamedLink = tuple[str, MeasuredLink]
"""a record of links, with the name of its file"""
_FLAT_RINGS = ("all_gather", "reduce_scatter")
"""of which a node cannot send more than its line carries; all-reduces that switches add up send less than they count"""


class Linked(NamedTuple):
    """What records say of a machine's links."""

    lines: tuple[MeasuredLine, ...]
    used: tuple[tuple[str, str], ...]
    """record, and of what"""
    refused: tuple[tuple[str, str], ...]
    """record, and why"""
    assumptions: tuple[Assumption, ...]


class LinkShelf:
    """Records of links. Of several that fit the newest counts, inside the nodes and between them."""

    def __init__(self, links: Sequence[NamedLink], network_gbit_s: float | None) -> None:
        """
        Args:
            links: with the names of their files
            network_gbit_s: line rate of a node in the worksheet of the one who asks [Gbit/s]: a record that does not say its own was
                measured there, and on no other network
        """
        self._links = sorted(links, key=lambda pair: pair[1].made, reverse=True)
        self._network_gbit_s = network_gbit_s
        self._known: dict[tuple[object, ...], Linked] = {}

    def of(self, job: Job) -> Linked:
        """What the records say of the job's machine."""
        machine = job.machine
        key = (machine.card and machine.card.key, machine.link, machine.gpus, machine.nodes, machine.network_gbit_s)
        if key not in self._known:
            self._known[key] = self._judged(machine)
        return self._known[key]

    def _judged(self, machine: Machine) -> Linked:
        lines: list[MeasuredLine] = []
        used: list[tuple[str, str]] = []
        refused: list[tuple[str, str]] = []
        said: list[Assumption] = []
        newest: dict[bool, str] = {}
        for name, link in self._links:
            why = self._why_not(link, machine)
            found = () if why else lines_of(link, machine.network_gbit_s)
            if not why and not found:
                why = "its sizes are too few, or too alike, to tell latency from rate"
            if not why and (first := newest.get(link.nodes > 1)):
                why = f"{first} is newer, of the same links"
            if why:
                refused.append((name, why))
                continue
            newest[link.nodes > 1] = name
            where = f"between {link.nodes} nodes" if link.nodes > 1 else "inside a node"
            used.append((name, f"links {where} of {link.ranks // link.nodes} x {machine.card.key if machine.card else ''}"))
            lines += found
            said += [_assumption(name, where, each) for each in found]
        return Linked(tuple(lines), tuple(used), tuple(refused), tuple(said))

    def _why_not(self, link: MeasuredLink, machine: Machine) -> str:
        """Empty: it stands for the links of this machine."""
        if link.device == "cpu" or link.backend != "nccl":
            return f"it ran over {link.backend} on processors, which says nothing of links between GPUs"
        if machine.card is None:
            return "it measured links between GPUs, and the worksheet names none"
        if machine.gpus * machine.nodes < 2:
            return "it measured links, and the worksheet has one GPU"
        cards, per_node = cards_named(link.device), link.ranks // link.nodes
        if len(cards) != 1:
            return f"its device, {link.device[:60]}, is {'sold in several forms' if cards else 'no card of the catalogue'}"
        if cards[0].key != machine.card.key:
            return f"it ran on {cards[0].key}, not on {machine.card.key}"
        if per_node != machine.gpus:
            return f"it ran on {per_node} GPUs a node, not on {machine.gpus}"
        usual = default_node(cards[0], per_node).link
        if per_node > 1 and usual != machine.link:
            return f"it ran on GPUs joined as such usually are, by {usual}, not by {machine.link}"
        if link.nodes > 1:
            return self._why_not_between(link, machine)
        line = default_node(cards[0], per_node).link_bytes_per_second_bidirectional
        most = max((fit.bytes_per_second for name in LINK_COLLECTIVES if (fit := link.fit(name)) is not None), default=0.0)
        if line is not None and most > line:  # both directions together: a switch that adds up sends each byte once
            return f"its GPUs sent {most / 1e9:,.0f} GB/s, more than {usual} of {cards[0].key} carries ({line / 1e9:,.0f} both ways)"
        return ""

    def _why_not_between(self, link: MeasuredLink, machine: Machine) -> str:
        if link.nodes != machine.nodes:
            return f"it ran on {link.nodes} nodes, not on {machine.nodes}"
        line = machine.network_gbit_s
        if line is None:
            return "it measured a network, and the worksheet does not state machine.network_gbit_s, by which networks are told apart"
        if link.network_gbit_s is None and line != self._network_gbit_s:
            return f"it does not say its line rate (fullstep link --network-gbit-s), so that it is not taken for {line:g} Gbit/s"
        if link.network_gbit_s not in (None, line):
            return f"it ran on a network of {link.network_gbit_s:g} Gbit/s a node, not of {line:g}"
        rates = [fit.bytes_per_second / GBIT_BYTES for name in _FLAT_RINGS if (fit := link.fit(name)) is not None]
        if rates and max(rates) > line:
            return f"its nodes sent {max(rates):,.0f} Gbit/s, more than the worksheet's network of {line:g} carries"
        return ""


def lines_of(link: MeasuredLink, network_gbit_s: float | None) -> tuple[MeasuredLine, ...]:
    """A line for each collective whose sizes give one.

    Args:
        link: measured
        network_gbit_s: line rate of a node, on which it was measured [Gbit/s]; it makes no difference inside a node
    """
    found = []
    for name in LINK_COLLECTIVES:
        fit = link.fit(name)
        if fit is not None:
            line_gbit_s = network_gbit_s if link.nodes > 1 else None
            beside = _beside(link, name, fit)
            found.append(MeasuredLine(name, link.ranks, link.nodes, fit.latency_seconds, fit.bytes_per_second, beside, line_gbit_s))
    return tuple(found)


def _beside(link: MeasuredLink, collective: str, fit: LinkFit) -> tuple[tuple[float, Bounds], ...]:
    """Of each size the calls' first quartile, median and third quartile over what the line says."""
    found = []
    for sample in link.of(collective):
        plain = fit.latency_seconds + sample.sent_bytes / fit.bytes_per_second
        first, third = sample.quartile_seconds
        found.append((sample.sent_bytes, Bounds(first / plain, sample.median_seconds / plain, third / plain)))
    return tuple(found)


def _assumption(name: str, where: str, line: MeasuredLine) -> Assumption:
    value = f"{line.latency_seconds * 1e6:.3g} us, {line.bytes_per_second / 1e9:.3g} GB/s"
    return Assumption(f"evidence.link.{line.collective}", value, f"record {name}: measured {where}, in the place of assumed shares")
