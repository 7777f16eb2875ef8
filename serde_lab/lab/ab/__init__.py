"""Measures two versions of the code alternately."""
