"""Finds and downloads the pinned jars that pip does not install."""
