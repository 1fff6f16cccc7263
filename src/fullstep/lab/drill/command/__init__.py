"""Somebody's own training: run, killed, started again, its logged losses compared."""
