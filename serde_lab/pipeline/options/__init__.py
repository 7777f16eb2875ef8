"""Parses write options, under Hudi's own names, into typed values."""
