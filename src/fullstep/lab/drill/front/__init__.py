"""The drill's conductor: it starts processes, kills them, and judges what they left. Never loads torch."""
