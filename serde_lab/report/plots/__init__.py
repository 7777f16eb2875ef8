"""Draws plots: values (`drawings`), layouts (`bars`, `points`, `steps`, `lines`), matplotlib (`canvas`).

Every plot is drawn twice: wide, and narrow for phones.
"""
