"""Renders comparisons, gates and histories as text, Markdown, CSV, JSON and JUnit."""
