"""Writes the records of a file group: merges them, then appends to a log or writes a base file."""
