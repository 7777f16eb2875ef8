"""Builds the page of one run: its facts, and one module for each section."""
