"""Rows from Parquet files: read by position, derived as streams of updates, written as checksummed parts."""
