"""Experiments. Only what runs in worker processes imports torch."""
