"""Scenarios: TOML files that define what is measured. `loading.load_scenario` reads and checks one.

This package defines the keys of a scenario and which of them can be combined. It carries nothing out.
"""
