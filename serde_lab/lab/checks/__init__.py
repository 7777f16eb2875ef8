"""Checks the data before a run, and each cell's output before its timing counts."""
