"""Judges runs: what changed, whether that can be defended, and what a gate makes of it.

Owns comparisons, verdicts, baselines, history and the gate's own proof. Reads run directories
only; knows neither Spark nor Java nor how a run was made.
"""
