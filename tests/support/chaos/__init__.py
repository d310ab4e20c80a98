"""Faults of every kind against a server that runs, and what became of it: `python -m tests.support.chaos`."""
