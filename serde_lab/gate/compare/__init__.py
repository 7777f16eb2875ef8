"""Compares two sides cell by cell and gives each pair a verdict."""
