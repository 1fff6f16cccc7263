"""Time of a training step: FLOP by component, achieved rates of a card, and the seconds that follow from both."""
