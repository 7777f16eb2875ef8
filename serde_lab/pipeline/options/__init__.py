"""The options of a write by Hudi's own names, read into values."""
