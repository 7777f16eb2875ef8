"""Draws plots: `drawings` has their values, `draw` and `lines` lay them out, and `canvas` calls matplotlib.

Every plot is drawn twice: wide, and narrow for phones.
"""
