"""Clocks, phases and metrics: what a cell took, and where and by which code it was measured."""
