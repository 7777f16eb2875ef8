"""Warms up a fresh worker on made-up rows before any measurement begins.

A worker's first task takes half as long again as its later ones: modules are imported on first use, and
the kernel provides memory pages at first touch.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from serde_lab.pipeline.exchange.in_process import Exchange, InProcessExchange
from serde_lab.pipeline.options.write import WriteOptions
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.serde.interface import SerdeOptions
from serde_lab.table.config import TableConfig
from serde_lab.table.storage.storage import Storage

# the first run imports modules, the second one shows the speed
_ROWS = (2_000, 2_000, 20_000, 150_000)
_BATCH = 10_000
_PATIENCE_S = 3.0  # of CPU

DEFAULT_FRAMING = SerdeOptions(rows_per_frame=-1)
"""The strategy's default number of rows per frame."""


Carry: TypeAlias = Callable[[list[pa.RecordBatch], Path], Exchange]
"""Makes the exchange that carries these rows; it may put files into the folder."""


def _in_process(batches: list[pa.RecordBatch], _: Path) -> Exchange:
    return InProcessExchange([batches])


def exercise(
    strategy: str, serde: SerdeOptions, rows: int, folder: str, carry: Carry = _in_process
) -> None:
    """Write a temporary table in `folder` by `strategy`, twice per step, with more and more rows.

    A step has at most half of `rows`, and steps that would take too long are skipped. `rows` is about
    what a task will have: both stages in one process hold twice as much as one, and must not set the peak
    memory.
    """
    before, took_s = 1, 0.0
    for step in _ROWS:
        count = min(step, rows // 2)
        if not count or took_s * count / before > _PATIENCE_S:
            return
        began = time.process_time()
        _write_twice(strategy, serde, count, folder, carry)
        took_s, before = time.process_time() - began, count


def _write_twice(strategy: str, serde: SerdeOptions, rows: int, folder: str, carry: Carry) -> None:
    table = TableConfig(
        name="warm_up",
        record_key_fields=("order", "line"),
        ordering_fields=("ts",),
        bucket_count=1,
        bucket_fields=("order", "line"),
    )
    options = WriteOptions(table=table, strategy=strategy, serde=serde, seed=0)
    with tempfile.TemporaryDirectory(prefix="warm-up-", dir=folder) as place:
        table_folder = Path(place) / "table"
        for _ in range(2):
            batches = list(_made_up(rows))
            prepared = PreparedWrite.of(Storage.open(table_folder), batches[0].schema, options)
            prepared.commit(carry(batches, Path(place)))


def _made_up(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows of the most common types, as wide as lineitem's."""
    words = pa.array([f"word {i} of a comment that is about as long" for i in range(500)])
    for start in range(0, rows, _BATCH):
        number = np.arange(start, min(start + _BATCH, rows))
        amount = pa.array(number % 9_973).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
        some = words.take(pa.array(number % len(words)))
        flag = pa.array(["A", "N", "R", "DELIVER IN PERSON"]).take(pa.array(number % 4))
        day = pa.array((number % 2_500).astype(np.int32)).cast(pa.date32())
        columns = {
            "order": pa.array(number // 4),
            "line": pa.array((number % 4).astype(np.int32)),
            "part": pa.array(number * 7_919 % 200_003),
            **{f"amount{i}": amount.cast(pa.decimal128(15, 2)) for i in range(4)},
            **{f"day{i}": day for i in range(3)},
            **{f"flag{i}": flag for i in range(4)},
            "comment": some,
            "ts": pa.array(number),
        }
        yield pa.RecordBatch.from_pydict(columns)
