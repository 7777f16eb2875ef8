"""Runs the pipeline on Spark: exchange, workers, sources, and the public write and read."""
