"""What depends on the version of transformers that the worksheet's framework runs."""

from __future__ import annotations

from fullstep.job import Settings
from fullstep.job.habits import NOT_REENTRANT, transformers_numbers


def asked_transformers(settings: Settings) -> tuple[int, ...]:
    """Version of transformers whose classes the worksheet's framework runs; empty: any, or classes of its own."""
    stated = settings.worksheet.section("step").get("framework_version")
    return () if stated is None else transformers_numbers(settings.step.framework, stated) or ()


def recomputes_reentrantly(settings: Settings) -> bool:
    """Recomputation was torch's reentrant kind in transformers before 5."""
    asked = asked_transformers(settings)
    return bool(asked) and asked < NOT_REENTRANT


def recomputes_units(settings: Settings) -> bool:
    """The loop over the blocks recomputed each as it called it, around what FSDP1 puts there; since 4.53 a block recomputes itself inside.

    Source: transformers, modeling_llama.py until 4.52; modeling_layers.py, GradientCheckpointingLayer.
    """
    asked, layout, every = asked_transformers(settings), settings.layout, settings.step.activation_checkpointing
    return bool(asked) and asked < (4, 53) and layout.is_fsdp and layout.implementation == "fsdp1" and every == "full"
