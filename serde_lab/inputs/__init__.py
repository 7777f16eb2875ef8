"""Input rows: reads Parquet files by position, derives streams of updates, writes parts with checksums."""
