"""TPC-H data for `serde_lab`: its tables as parquet, and streams of updates derived from any table.

Stands beside the package: it may use `serde_lab.records` and `serde_lab.errors`, and knows neither
scenarios nor Spark. Everything works part by part; when and where parts are made is the caller's.
"""
