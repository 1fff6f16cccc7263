"""Runs inside of each rank. Only this folder of the link imports torch."""
