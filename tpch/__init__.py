"""Generates TPC-H's tables as folders of Parquet files.

`TABLES` describes the eight tables; `generate` makes one with the program tpchgen-cli. serde_lab imports
only this module, none below it.
"""

from tpch.generator import Generated, generate, generator_version
from tpch.tables import TABLES, TpchTable

__all__ = ["TABLES", "Generated", "TpchTable", "generate", "generator_version"]
