"""TPC-H's tables as parquet folders.

`TABLES` has the facts of the eight tables, `generate` makes one by the program tpchgen-cli. serde_lab
imports this module and none below it.
"""

from tpch.generator import Generated, generate, generator_version
from tpch.tables import TABLES, Table

__all__ = ["TABLES", "Generated", "Table", "generate", "generator_version"]
