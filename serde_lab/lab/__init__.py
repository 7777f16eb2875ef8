"""Runs scenarios: checks and data before the clock, Spark sessions, cells in rounds, and the run's files."""
