"""A provider's terms in words: figures first, then what its documents say."""

from __future__ import annotations

from collections.abc import Iterator

from fullstep.offers.provider import Provider, Tier
from fullstep.report.paper import Paper

UNKNOWN_WORD = "unknown"
_STOPPED = {
    "compute_free": "GPUs cost nothing, disks do",
    "billed": "billed on in full until deleted",
    "no_stop": "cannot be stopped, only ended",
}


def traits(provider: Provider) -> Iterator[tuple[str, str]]:
    """Each term with its label; "unknown" where no document says it."""
    texts = provider.texts
    yield "Billing step", _joined(_duration(provider.billing_step_seconds), texts.get("billing_step", ""))
    yield "At least", _joined(_duration(provider.minimum_seconds, nothing="no minimum"), texts.get("minimum_charge", ""))
    yield "When stopped", _joined(_STOPPED[provider.stopped] if provider.stopped else "", _bill(texts.get("stopped_machine", "")))
    yield "Interruptible", texts.get("interruptible", "") or UNKNOWN_WORD
    yield "Notice", _joined(_duration(provider.notice_seconds, nothing="none"), texts.get("on_interruption", ""))
    yield "Longest run", f"{provider.longest_hours:g} h, then stopped" if provider.longest_hours else "no cap known"
    yield "Storage", _joined(_disk(provider), texts.get("storage_price", ""))
    yield "Kept on stop", texts.get("storage_after_stop", "") or UNKNOWN_WORD
    yield "Egress", _joined(_egress(provider.egress), texts.get("egress", ""))
    yield "Access", provider.access or UNKNOWN_WORD
    yield "Fabric", texts.get("fabric", "") or UNKNOWN_WORD
    if provider.interrupted_every_hours is not None:
        yield "Interrupted", f"every {provider.interrupted_every_hours:g} h in the mean, by your file"
    if provider.wait_hours is not None:
        yield "Wait", f"{provider.wait_hours:g} h for another machine, by your file"
    if texts.get("notes"):
        yield "Notes", texts["notes"]
    yield "Said by", _joined(texts.get("sources", ""), texts.get("source_dates", "")) if texts.get("sources") else "no document at hand"


def trait_lines(provider: Provider, paper: Paper) -> list[str]:
    """The terms of one provider."""
    country = f" ({provider.country})" if provider.country else ""
    lines = [paper.ink(f"{provider.name}{country}", "bold")]
    for label, text in traits(provider):
        lines += paper.entry(label, text)
    return lines


def _bill(text: str) -> str:
    """The column says whether it is billed, often by yes or no alone."""
    return f"on the bill: {text}" if text else ""


def _joined(figure: str, text: str) -> str:
    if not figure or not text:
        return figure or text or UNKNOWN_WORD
    return figure if figure == text else f"{figure}; {text}"


def _duration(seconds: float | None, nothing: str = "") -> str:
    if seconds is None:
        return ""
    if seconds == 0:
        return nothing
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _disk(provider: Provider) -> str:
    if provider.disk_usd_gb_month is None:
        return ""
    stopped = "" if provider.stopped_disk_usd_gb_month is None else f", {provider.stopped_disk_usd_gb_month} when stopped"
    return f"{provider.disk_usd_gb_month} USD/GB a month{stopped}"


def _egress(tiers: tuple[Tier, ...] | None) -> str:
    if tiers is None:
        return ""
    if all(tier.usd_per_gb == 0 for tier in tiers):
        return "free"
    if len(tiers) == 1:
        return f"{tiers[0].usd_per_gb} USD/GB"
    return f"{', '.join(str(tier.usd_per_gb) for tier in tiers)} USD/GB, by the amount in a month"
