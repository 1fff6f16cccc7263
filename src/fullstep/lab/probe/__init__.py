"""A probe: real full steps on real hardware, measured."""
