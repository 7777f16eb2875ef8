"""Computes the values that pages, gates and scripts show from a run's samples, each value once.

A value's `to_json` is its part of `show --format json`; in `search`, of `search.json`.
"""
