"""The bill: what a run on rented machines costs, and how likely it keeps to a limit where they are taken away."""
