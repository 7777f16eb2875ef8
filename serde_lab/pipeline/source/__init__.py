"""Finds the rows of a write and the table schema that they lead to."""
