"""Prices of today, fetched provider by provider: one that is broken, slow or talks nonsense is reported and harms no other."""
