"""The link's conductor: it starts the ranks and puts together what they timed. Never loads torch."""
