"""Computes the tests, intervals and levels behind the verdicts."""
