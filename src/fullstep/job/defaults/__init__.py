"""What stands in for every key that a worksheet leaves out, section by section."""
