"""Stores baselines: sides of earlier runs, kept for comparison."""
