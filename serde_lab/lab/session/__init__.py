"""Spark sessions of a run: settings, start and end, workers' environments."""
