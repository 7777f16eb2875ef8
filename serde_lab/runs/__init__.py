"""Run directories: measured values as they were taken down, and the summaries made of them."""
