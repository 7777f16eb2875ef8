"""Writes the records of a file group: merges them and appends a log or makes a base file."""
