"""Checks the contents of finished tables against an independent oracle and independent readers."""
