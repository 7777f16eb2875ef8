"""Computes the values that pages, gates and scripts show from a run's samples, each value once."""
