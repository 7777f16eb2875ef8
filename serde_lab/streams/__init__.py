"""Writes Spark's streaming queries to Hudi tables, each micro-batch exactly once."""
