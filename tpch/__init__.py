"""Generates TPC-H's tables as folders of Parquet files.

`TABLES` describes the eight tables; `generate` makes one with the program tpchgen-cli; `RefreshStream`
makes batches by the refresh functions; `QUERIES` has some of its queries. serde_lab imports only this
module, none below it.
"""

from tpch.generator import TABLES, Generated, TpchTable, generate, generator_version
from tpch.workload import QUERIES, REFRESHED, REFRESHED_SHARE, Query, RefreshStream

__all__ = [
    "QUERIES",
    "REFRESHED",
    "REFRESHED_SHARE",
    "TABLES",
    "Generated",
    "Query",
    "RefreshStream",
    "TpchTable",
    "generate",
    "generator_version",
]
