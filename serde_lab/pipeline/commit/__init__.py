"""Drives an instant from requested to completed, and runs the table services that follow."""
