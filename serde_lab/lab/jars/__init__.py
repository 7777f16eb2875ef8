"""Jars that pip does not bring: which ones, where they are found, how they are fetched."""
