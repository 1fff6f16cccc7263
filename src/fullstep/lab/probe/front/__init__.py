"""The probe's front: it starts ranks, and puts together what they left. Never loads torch."""
