"""Answers on paper: text for a terminal of 80 columns, and the JSON of the contract."""
