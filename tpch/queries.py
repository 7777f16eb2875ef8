"""Queries of TPC-H with the parameters by which the specification validates answers.

Source: TPC-H specification 3.0.1, section 2.4, "Query Validation" of each query. The texts mean the same in
Spark SQL and in DuckDB: intervals are computed, and where the specification leaves the order of equal rows
open, a key decides it, so that LIMIT takes the same rows everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    """One query: the tables that it reads, its parameters in words, and its text."""

    tables: tuple[str, ...]
    about: str
    parameters: str
    sql: str


QUERIES: Mapping[str, Query] = {
    "q1": Query(
        ("lineitem",),
        "pricing summary report",
        "DELTA 90",
        """
        SELECT l_returnflag, l_linestatus,
            sum(l_quantity) AS sum_qty,
            sum(l_extendedprice) AS sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            avg(l_quantity) AS avg_qty,
            avg(l_extendedprice) AS avg_price,
            avg(l_discount) AS avg_disc,
            count(*) AS count_order
        FROM lineitem
        WHERE l_shipdate <= DATE '1998-09-02'
        GROUP BY l_returnflag, l_linestatus
        ORDER BY l_returnflag, l_linestatus
        """,
    ),
    "q3": Query(
        ("customer", "orders", "lineitem"),
        "shipping priority",
        "SEGMENT BUILDING, DATE 1995-03-15",
        """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate,
            o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey
        LIMIT 10
        """,
    ),
    "q5": Query(
        ("customer", "orders", "lineitem", "supplier", "nation", "region"),
        "local supplier volume",
        "REGION ASIA, DATE 1994-01-01",
        """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
            AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey
            AND n_regionkey = r_regionkey AND r_name = 'ASIA'
            AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name
        ORDER BY revenue DESC, n_name
        """,
    ),
    "q6": Query(
        ("lineitem",),
        "forecasting revenue change",
        "DATE 1994-01-01, DISCOUNT 0.06, QUANTITY 24",
        """
        SELECT sum(l_extendedprice * l_discount) AS revenue
        FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
            AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24
        """,
    ),
    "q10": Query(
        ("customer", "orders", "lineitem", "nation"),
        "returned item reporting",
        "DATE 1993-10-01",
        """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal,
            n_name, c_address, c_phone, c_comment
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01'
            AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        ORDER BY revenue DESC, c_custkey
        LIMIT 20
        """,
    ),
    "q12": Query(
        ("orders", "lineitem"),
        "shipping modes and order priority",
        "SHIPMODE1 MAIL, SHIPMODE2 SHIP, DATE 1994-01-01",
        """
        SELECT l_shipmode,
            sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH'
                THEN 1 ELSE 0 END) AS high_line_count,
            sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH'
                THEN 1 ELSE 0 END) AS low_line_count
        FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
            AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
            AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode
        ORDER BY l_shipmode
        """,
    ),
    "q14": Query(
        ("lineitem", "part"),
        "promotion effect",
        "DATE 1995-09-01",
        """
        SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%'
                THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
            / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM lineitem, part
        WHERE l_partkey = p_partkey
            AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'
        """,
    ),
    "q18": Query(
        ("customer", "orders", "lineitem"),
        "large volume customer",
        "QUANTITY 300",
        """
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
        FROM customer, orders, lineitem
        WHERE o_orderkey IN (
                SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey
        LIMIT 100
        """,
    ),
}
"""The queries by name."""
