"""Somebody's own training: started with an import hook that watches its steps, and measured unchanged."""
