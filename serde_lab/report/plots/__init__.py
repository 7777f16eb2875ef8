"""Plots: values (`drawings`), their layout (`bars`, `points`, `steps`, `lines`), matplotlib (`canvas`).

Draws whatever it is given, twice: wide, and narrow for a phone. Must not know runs, pages or HTML.
"""
