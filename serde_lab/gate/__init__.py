"""Judges runs: compares them, decides whether a change is significant, and turns that into an exit status.

Holds comparisons, verdicts, baselines, history and the gate's self-test. Works on run directories only.
"""
