"""Measures what a cell takes (clocks, phases, metrics), and records the machine and code it ran on."""
