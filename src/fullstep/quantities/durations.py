"""Durations: inside fullstep everything is seconds."""

from __future__ import annotations

HOUR_SECONDS = 3600.0
