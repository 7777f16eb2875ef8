"""Makes and caches the input batches of a scenario."""
