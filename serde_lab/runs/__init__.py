"""Stores and loads run directories: measured values as recorded."""
