"""A folder for PYTHONPATH. Nothing imports it as a package."""
