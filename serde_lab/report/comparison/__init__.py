"""The report of a comparison or of a gate, from the plain data that `compare --format json` prints.

Turns that document into a `report.page.Page`. Judges nothing and rounds nothing anew: figures and
verdicts are shown as they were decided on. Must not know the gate, HTML or matplotlib.
"""
