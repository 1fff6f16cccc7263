"""The cards that fullstep knows: one row of ``data/cards.csv`` each, read when first asked for.

The file is split into rows once (well under a millisecond); a :class:`Card` is made only of a row that somebody asks for.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, cast

from fullstep.errors import Fault, InputError
from fullstep.hardware.card import Card, Link
from fullstep.quantities import GB, GIB, MIB

DATA = Path(__file__).parent / "data"
_CARDS = DATA / "cards.csv"
_LONGEST_NAME = 80
_TERA = 10**12
_NO_DISTINCTION = str.maketrans("", "", " \t\n-_./,:()[]")


@cache
def card_rows() -> Mapping[str, Mapping[str, str]]:
    """Rows of the catalogue by key, every figure still the text and in the unit of its column (see ``data/README.md``)."""
    with _CARDS.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        columns = next(lines)
        return {line[0]: dict(zip(columns, line, strict=True)) for line in lines}


@cache
def card(key: str) -> Card:
    """The card with exactly this key of the catalogue.

    >>> card("H100-SXM").memory_bytes_per_second
    3350000000000.0
    """
    return _card(card_rows()[key])


def all_cards() -> tuple[Card, ...]:
    """Every card of the catalogue, in its order."""
    return tuple(card(key) for key in card_rows())


@cache
def find_card(name: str) -> Card:
    """The card that a name means: its key, or an alias written out in the data; case, spaces and punctuation do not count.

    Aliases include what ``nvidia-smi`` and ``torch.cuda.get_device_name()`` print.

    >>> find_card("nvidia h100 80gb hbm3").key
    'H100-SXM'

    Raises:
        InputError: the name means several cards (they are listed), or none (the nearest names are listed).
    """
    if len(name) > _LONGEST_NAME:
        raise InputError(Fault("machine.gpu", f"a name of {len(name)} characters", f"at most {_LONGEST_NAME}"))
    if name in card_rows():
        return card(name)
    keys = _keys_by_name().get(plain_name(name), ())
    if len(keys) == 1:
        return card(keys[0])
    if keys:
        raise InputError(
            Fault("machine.gpu", f'"{name}" is sold in {len(keys)} forms', ", ".join(map(_described, keys)), "Name one of them.")
        )
    raise InputError(_unknown(name))


def cards_named(name: str) -> tuple[Card, ...]:
    """All cards that a name may mean, by key or alias; none: no card is known by it.

    >>> [card.key for card in cards_named("A100-40GB")]
    ['A100-PCIE-40GB', 'A100-SXM4-40GB']
    """
    return tuple(map(card, _keys_by_name().get(plain_name(name), ())))


def plain_name(name: str) -> str:
    """A name without what does not distinguish cards.

    >>> plain_name("RTX 4060 Ti-16GB")
    'rtx4060ti16gb'
    """
    return name.lower().translate(_NO_DISTINCTION)


@cache
def _keys_by_name() -> Mapping[str, tuple[str, ...]]:
    """Keys that each plain name stands for. A key means itself, whatever other cards have it as an alias."""
    rows = card_rows()
    found: dict[str, tuple[str, ...]] = {}
    for key, row in rows.items():
        for plain in dict.fromkeys(map(plain_name, filter(None, row["aliases"].split("|")))):
            found[plain] = (*found.get(plain, ()), key)
    found.update((plain_name(key), (key,)) for key in rows)
    return found


def _described(key: str) -> str:
    row = card_rows()[key]
    return f"{key} ({row['marketing_gb']} GB, {row['form_factor']})"


def _unknown(name: str) -> Fault:
    from difflib import get_close_matches  # noqa: PLC0415  (only a wrong name pays for it)

    names = _keys_by_name()
    plain = plain_name(name)
    near = get_close_matches(plain, names, n=8, cutoff=0.5)
    near += [other for other in names if len(plain) > 2 and plain in other]
    keys = list(dict.fromkeys(key for other in near for key in names[other]))[:6]
    allowed = f"nearest: {', '.join(keys)}" if keys else f"a key of the catalogue: {', '.join(card_rows())}"
    return Fault(
        "machine.gpu",
        f'no card is known as "{name}"',
        allowed,
        "CONTRIBUTING.md says how to add a card; until then size for a known one and state machine.gpu_memory_gib.",
    )


def _number(row: Mapping[str, str], column: str, unit: float) -> float | None:
    text = row[column]
    return float(text) * unit if text else None


def _whole(row: Mapping[str, str], column: str, unit: int = 1) -> int | None:
    text = row[column]
    return round(float(text) * unit) if text else None


def _flag(text: str) -> bool | None:
    return {"yes": True, "no": False, "": None}[text]


def _card(row: Mapping[str, str]) -> Card:
    return Card(
        key=row["key"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=row["compute_capability"],
        form_factor=row["form_factor"],
        marketing_bytes=round(float(row["marketing_gb"]) * GB),
        reported_bytes=_whole(row, "driver_mib", MIB),
        usable_bytes_seen=_whole(row, "usable_gib", GIB),
        usable_source=row["usable_source"],
        memory_bytes_per_second=_number(row, "memory_gb_s", GB),
        bf16_flop_per_second=_number(row, "bf16_dense_tflops", _TERA),
        fp16_flop_per_second=_number(row, "fp16_dense_tflops", _TERA),
        fp8_flop_per_second=_number(row, "fp8_dense_tflops", _TERA),
        tf32_flop_per_second=_number(row, "tf32_dense_tflops", _TERA),
        achieved_bf16_flop_per_second=_number(row, "achieved_bf16_tflops", _TERA),
        link=cast(Link, row["link"]),
        bridge_gpus=_whole(row, "bridge_gpus"),
        link_bytes_per_second_bidirectional=_number(row, "link_gb_s_bidirectional", GB),
        pcie_peer=_flag(row["pcie_peer"]),
        pcie_generation=_whole(row, "pcie_generation"),
        pcie_lanes=int(row["pcie_lanes"]),
        power_watt=_whole(row, "power_watt"),
        trains_bf16=row["trains_bf16"] == "yes",
        trains_fp8=row["trains_fp8"] == "yes",
        has_flash_attention=row["flash_attention"] == "yes",
        sources=row["sources"],
        seen=row["seen"],
        confidence=cast(Literal["high", "medium", "low"], row["confidence"]),
        notes=row["notes"],
    )
