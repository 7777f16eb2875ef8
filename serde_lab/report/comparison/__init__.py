"""Builds the page of a comparison or a gate from the plain data that `compare --format json` prints.

Figures and verdicts are shown exactly as they were decided on: nothing is judged or rounded again.
"""
