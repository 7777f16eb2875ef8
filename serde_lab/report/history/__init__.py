"""Builds the page of a history from the plain data that `history --format json` prints.

The page shows series over runs, their steps, and who acknowledged them.
"""
