"""TPC-H's work on its tables: refresh functions as batches, which add and remove orders, and queries.

By RF1 and RF2 (TPC-H specification 3.0.1, sections 2.26 and 2.27) a pair of refresh functions adds scale
factor x 1,500 new orders and removes as many old ones, each with all its lineitems. `tpchgen-cli` makes no
such rows, so the new orders are held out of the initial load.

The orders are cut into blocks of one refresh function each, in the order of their keys, as the
specification's own program does. The seed decides which blocks come in and which go out. This depends on
order keys alone, so that the refreshes of orders and of lineitem go together.

The queries have the parameters by which the specification validates answers (section 2.4, "Query Validation"
of each query). The texts mean the same in Spark SQL and in DuckDB: intervals are computed, and where the
specification leaves the order of equal rows open, a key decides it, so that LIMIT takes the same rows
everywhere.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from serde_lab.errors import DataError, UsageError, did_you_mean
from serde_lab.inputs.event_time import EVENT_TS, FIRST_DAY_US, AddedEventTime, OrderedRows
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.parts import (
    Manifest,
    OnProgress,
    Part,
    PartFolder,
    PartWriter,
    silent,
    write_parts,
)
from serde_lab.inputs.random_choices import shuffled, stream
from serde_lab.inputs.update_stream import Counts
from tpch.generator import TABLES, alone_to_make, generate

IS_DELETED = "_hoodie_is_deleted"
"""Apache Hudi's own delete marker: a boolean column (HoodieRecord.HOODIE_IS_DELETED_FIELD)."""

REFRESHED = ("orders", "lineitem")
"""The tables that the refresh functions change."""

REFRESHED_SHARE = 0.002
"""About the share of a table's rows that come in and go out by one pair of functions."""

_ORDERS_AT_FACTOR_1 = 1_500
_ROWS_AT_A_TIME = 1 << 19


class RefreshStream:
    """The initial load of one table, batch 0, and its refreshes: batch n is the n-th pair RF1 and RF2.

    `source`: all rows of `table`, which is orders or lineitem, at `scale_factor`. Rows get two columns
    more: event_ts, newer with each batch, and `_hoodie_is_deleted`, which is true in the rows of RF2. These
    are the stored rows as a whole, after those of RF1. Raises UsageError for another table or too many
    pairs, and DataError if `source` is not such a table.
    """

    def __init__(
        self, source: ParquetRows, table: str, scale_factor: float, pairs: int, seed: int = 1
    ) -> None:
        check_refreshed(table)
        self._source, self._key = source, TABLES[table].primary_key[0]
        # as many as RF1 adds and RF2 removes
        self._orders = max(1, round(_ORDERS_AT_FACTOR_1 * scale_factor))
        self._starts, blocks = self._blocks()
        most = (blocks - 1) // 2
        if pairs > most:
            raise UsageError(
                f"{pairs:,} pairs of refresh functions take {2 * pairs:,} times {self._orders:,} orders, but"
                f" scale factor {scale_factor:g} has enough for {most:,} pairs"
            )
        order = shuffled(stream(seed, "refresh"), 0, blocks)
        self._new, self._old = order[:pairs], order[pairs : 2 * pairs]
        self.counts = tuple(self._counts())
        self.schema = pa.schema(
            [*source.schema, pa.field(EVENT_TS, pa.int64()), pa.field(IS_DELETED, pa.bool_())]
        )

    def tables(self, number: int) -> Iterator[pa.Table]:
        """The rows of batch `number` in the order of their keys, at most half a million at a time."""
        rank = 0
        for start, stop, deleted in self._ranges(number):
            for first in range(start, stop, _ROWS_AT_A_TIME):
                rows = self._source.read(first, min(stop, first + _ROWS_AT_A_TIME))
                yield self._marked(rows, number, rank, deleted)
                rank += len(rows)

    def _blocks(self) -> tuple[npt.NDArray[np.int64], int]:
        """The first row of each block and the number of rows; how many blocks have all their orders."""
        sizes, last = np.zeros(0, np.int64), -1
        for batch in self._source.batches(_ROWS_AT_A_TIME, [self._key]):
            numbers = self._order_numbers(batch.column(0).to_numpy())
            if len(numbers) and (np.diff(numbers, prepend=last) < 0).any():
                raise DataError(f"the rows are not in the order of {self._key}")
            found = np.bincount(numbers // self._orders, minlength=len(sizes))
            found[: len(sizes)] += sizes
            sizes, last = found, int(numbers[-1]) if len(numbers) else last
        return np.concatenate([[0], np.cumsum(sizes)]), (last + 1) // self._orders

    def _order_numbers(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers of orders, from 0, by their keys: TPC-H uses the first eight keys of each 32."""
        if ((keys & 31) > 7).any() or (keys < 1).any():
            raise DataError(f"{self._key} has a value that is no order key of TPC-H")
        return ((keys >> 5) << 3 | keys & 7) - 1

    def _counts(self) -> Iterator[Counts]:
        sizes = np.diff(self._starts)
        loaded = int(self._starts[-1] - sizes[self._new].sum())
        yield Counts(loaded, 0, loaded, 0, 0, 0)
        for new, old in zip(self._new, self._old, strict=True):
            coming, going = int(sizes[new]), int(sizes[old])
            yield Counts(coming + going, going, coming, 0, 0, going)

    def _ranges(self, number: int) -> Iterator[tuple[int, int, bool]]:
        """Ranges of rows of the source, each with whether they go out."""
        starts = self._starts
        if number:
            for block, deleted in ((self._new[number - 1], False), (self._old[number - 1], True)):
                yield int(starts[block]), int(starts[block + 1]), deleted
            return
        begin = 0
        for block in sorted(self._new.tolist()):
            yield begin, int(starts[block]), False
            begin = int(starts[block + 1])
        yield begin, int(starts[-1]), False

    def _marked(self, rows: pa.Table, number: int, rank: int, deleted: bool) -> pa.Table:
        ranks = np.arange(rank, rank + len(rows), dtype=np.int64)
        none = np.zeros(len(rows), np.int64)
        of = OrderedRows(number, self.counts[number].rows, ranks, late=none > 0, repeat=none)
        times = AddedEventTime().values(of)
        marks = pa.array(np.full(len(rows), deleted))
        return pa.table([*rows.columns, times, marks], schema=self.schema)


@dataclass(frozen=True, slots=True)
class Refreshes:
    """One table's initial load and its refreshes on disk, each a folder of Parquet files."""

    initial: Path
    refreshes: Path
    manifests: tuple[Manifest, Manifest]
    reused: bool


def prepare_refreshes(
    table: str,
    scale_factor: float,
    pairs: int,
    out: Path,
    *,
    seed: int = 1,
    progress: OnProgress = silent,
) -> Refreshes:
    """Make `out/<table>/initial` and `out/<table>/refreshes` unless they exist.

    File n of `refreshes` is the n-th pair of refresh functions. Files have rising times of change, so that
    Spark's file source with `maxFilesPerTrigger` 1 takes one pair a batch, in order. Raises UsageError for
    what `RefreshStream` refuses or a folder that holds something else.
    """
    check_refreshed(table)
    if pairs < 1:
        raise UsageError(f"pairs {pairs}: expected a number from 1")
    request: dict[str, Any] = {
        "table": table, "scale_factor": float(scale_factor), "pairs": pairs, "seed": seed,
    }  # fmt: skip
    with alone_to_make(out / table) as folder:
        return _made_once(folder, request, progress)


def _made_once(home: Path, request: Mapping[str, Any], progress: OnProgress) -> Refreshes:
    """The two folders in `home`, made unless they are there."""
    folders = PartFolder(home / "initial"), PartFolder(home / "refreshes")
    found = [folder.manifest() for folder in folders]
    for folder, manifest in zip(folders, found, strict=True):
        if manifest is not None and manifest.request != request:
            stored = ", ".join(f"{key} {value}" for key, value in manifest.request.items())
            raise UsageError(f"{folder.folder}: has {stored}", "name another folder, or remove it")
    initial, refreshes = found
    if initial is not None and refreshes is not None:
        return Refreshes(folders[0].folder, folders[1].folder, (initial, refreshes), reused=True)
    table, scale_factor, pairs = request["table"], request["scale_factor"], request["pairs"]
    temporary = home / ".whole"
    try:
        whole = generate(table, scale_factor, temporary, progress=progress)
        rows = ParquetRows(whole.manifest.files(whole.folder))
        batches = RefreshStream(rows, table, scale_factor, pairs, request["seed"])
        for folder in folders:
            folder.begin()
        parts = len(whole.manifest.parts)
        loaded = write_parts(
            folders[0].folder, batches.tables(0), batches.schema, batches.counts[0].rows, parts
        )
        initial = folders[0].finish(request, loaded, whole.manifest.notes)
        task = f"{table}: refreshes"
        refreshed = _write_refreshes(batches, folders[1].folder, pairs, task, progress)
        refreshes = folders[1].finish(request, refreshed, whole.manifest.notes)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Refreshes(folders[0].folder, folders[1].folder, (initial, refreshes), reused=False)


def check_refreshed(table: str) -> None:
    """Raise UsageError unless the refresh functions change `table`."""
    if table not in REFRESHED:
        raise UsageError(
            f"the refresh functions change {' and '.join(REFRESHED)}, not {table}",
            did_you_mean(table, REFRESHED),
        )


def _write_refreshes(
    batches: RefreshStream, folder: Path, pairs: int, task: str, progress: OnProgress
) -> Iterator[Part]:
    for number in range(1, pairs + 1):
        with PartWriter(folder, number - 1, batches.schema) as writer:
            for rows in batches.tables(number):
                writer.write(rows)
            part = writer.close()
        changed_s = FIRST_DAY_US // 1_000_000 + number
        os.utime(folder / part.name, (changed_s, changed_s))
        progress(task, number, pairs)
        yield part


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
