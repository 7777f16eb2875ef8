"""Describes the eight TPC-H tables: columns, primary keys and numbers of rows.

Names, keys and sizes are from the TPC-H specification 3.0.1, sections 1.4 and 4.2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TpchTable:
    """One table: its columns in order.

    `primary_key` is unique (partsupp's only from scale factor 0.01 on, where there are enough
    suppliers to choose from). Its first column is an int64, so that new keys can be made by adding to it.
    `rows_at_factor_1` is exact except for lineitem, whose orders have 1 to 7 lines.
    """

    name: str
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]
    rows_at_factor_1: int
    scales: bool = True

    def rows_at(self, scale_factor: float) -> int:
        """About how many rows the table has at `scale_factor`."""
        return round(self.rows_at_factor_1 * scale_factor) if self.scales else self.rows_at_factor_1


def _table(
    name: str, prefix: str, columns: str, key: str, rows: int, scales: bool = True
) -> TpchTable:
    def full(names: str) -> tuple[str, ...]:
        return tuple(f"{prefix}_{name}" for name in names.split())

    return TpchTable(name, full(columns), full(key), rows, scales)


TABLES: Mapping[str, TpchTable] = {
    table.name: table
    for table in (
        _table("region", "r", "regionkey name comment", "regionkey", 5, scales=False),
        _table("nation", "n", "nationkey name regionkey comment", "nationkey", 25, scales=False),
        _table(
            "supplier", "s", "suppkey name address nationkey phone acctbal comment", "suppkey",
            10_000,
        ),
        _table(
            "customer", "c", "custkey name address nationkey phone acctbal mktsegment comment",
            "custkey", 150_000,
        ),
        _table(
            "part", "p", "partkey name mfgr brand type size container retailprice comment",
            "partkey", 200_000,
        ),
        _table(
            "partsupp", "ps", "partkey suppkey availqty supplycost comment", "partkey suppkey",
            800_000,
        ),
        _table(
            "orders", "o",
            "orderkey custkey orderstatus totalprice orderdate orderpriority clerk shippriority "
            "comment",
            "orderkey", 1_500_000,
        ),
        _table(
            "lineitem", "l",
            "orderkey partkey suppkey linenumber quantity extendedprice discount tax returnflag "
            "linestatus shipdate commitdate receiptdate shipinstruct shipmode comment",
            "orderkey linenumber", 6_001_215,
        ),
    )
}  # fmt: skip
"""Every table by name, the smallest first."""
