"""Baselines: kept sides of earlier runs."""
