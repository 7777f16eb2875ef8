"""Finds the file group of every record before it is written."""
