"""Measures how typed rows become files: through whole Arrow batches, by columns, and block by block.

    python -m tests.serde.to_files [--rows 120000] [--rounds 9] --write

Records are those of TPC-H's lineitem, decoded from frames of 1,000 records. Figures are microseconds of CPU
time of this process per record, on one core: the median of all rounds, then their range. Ways are interleaved
in random order, after one round that does not count. `convert` is the time until the writer has Arrow
columns, `all` includes the file. `--write` remakes `to_files.json`, which `docs/trials.md` quotes.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.stats

from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import Bounds, BoundSerde, Records, SerdeOptions
from serde_lab.serde.internal_row.records import BLOCK_ROWS, RowRecords
from serde_lab.serde.registry import BUILT_IN, bind, strategy
from serde_lab.table.files.base_file import BaseFileWriter
from serde_lab.table.files.log_file import LogTarget, LogWriter
from serde_lab.table.storage.data_files import Writing
from serde_lab.table.storage.storage import Storage
from tpch import generate

RESULT = Path(__file__).with_suffix(".json")
FILES = ("base file", "log block")
FEW_ROWS = 20_000
PIECE_ROWS = 1 << 18
"""Records that a write handle converts at once."""

Rows = tuple[pa.Array, pa.RecordBatch]


def whole_batches(records: Records) -> Iterator[Rows]:
    """Whole Arrow batches, from which the writer's columns are picked."""
    for piece in records.pieces(PIECE_ROWS):
        yield Records.to_rows(piece)


def columns(records: Records) -> Iterator[Rows]:
    """Only the columns that a file holds; this is what a write does."""
    for piece in records.pieces(PIECE_ROWS):
        yield piece.to_rows()


def blocks(records: Records) -> Iterator[Rows]:
    """The same, but each block of records goes to the writer while its columns are in the CPU's caches."""
    for piece in records.pieces(BLOCK_ROWS):
        yield piece.to_rows()


WAYS: Mapping[str, Callable[[Records], Iterator[Rows]]] = {
    "whole batches": whole_batches,
    "columns": columns,
    "blocks": blocks,
}


@dataclass(frozen=True, slots=True)
class Case:
    """Records of one strategy as they arrive, as frames."""

    bound: BoundSerde
    frames: pa.BinaryArray

    @classmethod
    def of(cls, name: str, execution: str, schema: RecordSchema, batch: pa.RecordBatch) -> Case:
        bound = bind(name, schema, SerdeOptions(execution, 1000))  # type: ignore[arg-type]
        records = bound.from_arrow(batch)
        return cls(bound, bound.encode(records, Bounds.single(len(batch))).frame)

    def arrived(self) -> Records:
        """The records as a write handle has them, whose keys and ordering values have been read."""
        records = self.bound.decode(self.frames)
        records.record_keys()
        records.ordering_values()
        return records


def lineitem(rows: int, cache: Path) -> tuple[RecordSchema, pa.RecordBatch]:
    """The first rows of TPC-H's lineitem as a batch of records, with keys and places."""
    folder = generate("lineitem", max(0.01, rows / 5_900_000), cache / str(rows)).folder
    table = pq.read_table(sorted(folder.rglob("*.parquet"))).slice(0, rows).combine_chunks()
    assert len(table) == rows, f"{rows} rows asked for, {len(table)} there"
    schema = RecordSchema(table.schema, ("l_orderkey", "l_linenumber"), (), ("l_shipdate",))
    orders, lines = table["l_orderkey"].to_pylist(), table["l_linenumber"].to_pylist()
    keys = [f"l_orderkey:{o},l_linenumber:{n}" for o, n in zip(orders, lines, strict=True)]
    place = ("", "00000000-3713-4e67-bf01-06b7039ea53d-0", "U", "")
    envelope = [pa.array(keys), *(pa.repeat(text, rows) for text in place), pa.repeat(False, rows)]
    data = table.to_batches()[0].columns
    return schema, pa.RecordBatch.from_arrays([*envelope, *data], schema=schema.batch_schema)


def written(kind: str, schema: RecordSchema, rows: Iterator[Rows]) -> tuple[bytes, int]:
    """The bytes of the file, and the CPU nanoseconds of converting; rows are asked for one by one."""
    folder = Path(tempfile.mkdtemp())
    try:
        storage, instant = Storage.open(folder), "20260101000000000"
        writer: BaseFileWriter | LogWriter
        if kind == "base file":
            writer = BaseFileWriter(
                storage,
                Writing(instant, "1-0-1"),
                data_schema=schema.data,
                partition_path="",
                file_id="f-0",
            )
        else:
            writer = LogWriter(
                storage,
                Writing(instant, "1-0-1"),
                table_name="t",
                table_version=9,
                data_schema=schema.data,
                target=LogTarget("", "f-0", "20250101000000000"),
            )
        convert_ns = 0
        while True:
            began = time.process_time_ns()
            found = next(rows, None)
            convert_ns += time.process_time_ns() - began
            if found is None:
                break
            writer.append(*found)
        writer.close()
        files = sorted(f for f in folder.rglob("*f-0*") if f.is_file())
        return b"".join(file.read_bytes() for file in files), convert_ns
    finally:
        shutil.rmtree(folder)


def spread(values: list[float]) -> list[float]:
    """Median, least and greatest."""
    return [round(v, 3) for v in (statistics.median(values), min(values), max(values))]


def of_ways(
    case: Case, schema: RecordSchema, kind: str, rounds: int, rows: int
) -> dict[str, object]:
    """What each way of converting out takes, with the file and without."""
    times: dict[str, dict[str, list[float]]] = {w: {"convert": [], "all": []} for w in WAYS}
    contents: dict[str, bytes] = {}
    for number in range(rounds + 1):
        for way in random.sample(list(WAYS), len(WAYS)):
            records = case.arrived()
            gc.collect()
            began = time.process_time_ns()
            contents[way], convert_ns = written(kind, schema, WAYS[way](records))
            all_ns = time.process_time_ns() - began
            if number:
                times[way]["convert"].append(convert_ns / rows / 1000)
                times[way]["all"].append(all_ns / rows / 1000)
    first = times["whole batches"]
    return {
        way: {
            **{part: spread(found[part]) for part in found},
            "ratio": paired_ratio(found["all"], first["all"]),
            "same bytes": contents[way] == contents["whole batches"],
        }
        for way, found in times.items()
    }


def paired_ratio(times: list[float], base: list[float]) -> list[float]:
    """The geometric mean of the rounds' ratios, with its 95 % interval (Student's t on logarithms)."""
    logs = np.log(np.array(times) / np.array(base))
    half = 0.0
    if len(logs) > 1:
        half = scipy.stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return [round(float(np.exp(logs.mean() + step)), 3) for step in (0, -half, half)]


def of_fixed_columns(case: Case, schema: RecordSchema, rounds: int, rows: int) -> list[float]:
    """Reading the columns of fixed width: at most what a writer would save that took them from the rows."""
    records = case.arrived()
    assert isinstance(records, RowRecords)
    names = [field.name for field in records.shape.layout.fixed]
    times = []
    for _ in range(rounds):
        began = time.process_time_ns()
        for piece in records.pieces(PIECE_ROWS):
            piece._columns(names)
        times.append((time.process_time_ns() - began) / rows / 1000)
        records.forget_columns()
        records.record_keys()
    return spread(times)


def of_strategy(case: Case, rounds: int, rows: int) -> dict[str, list[float]]:
    """Converting out alone, both ways."""
    times: dict[str, list[float]] = {"whole batches": [], "columns": []}
    for number in range(rounds + 1):
        for way in random.sample(list(times), len(times)):
            records = case.arrived()
            gc.collect()
            began = time.process_time_ns()
            for _ in WAYS[way](records):
                pass
            if number:
                times[way].append((time.process_time_ns() - began) / rows / 1000)
    ratio = paired_ratio(times["columns"], times["whole batches"])
    return {**{way: spread(found) for way, found in times.items()}, "ratio": ratio}


def measured(rows: int, rounds: int, cache: Path) -> dict[str, object]:
    """All figures, as `to_files.json` holds them."""
    pa.set_cpu_count(1)
    schema, batch = lineitem(rows, cache)
    typed = Case.of("internal_row", "batch", schema, batch)
    few = batch.slice(0, min(rows, FEW_ROWS))
    return {
        "rows": rows,
        "rounds": rounds,
        "machine": f"one core of {platform.machine()}, Python {platform.python_version()},"
        f" pyarrow {pa.__version__}",
        "typed_row": {kind: of_ways(typed, schema, kind, rounds, rows) for kind in FILES},
        "typed_row_fixed_columns": of_fixed_columns(typed, schema, rounds, rows),
        "strategies": {
            f"{name} ({execution})": of_strategy(
                Case.of(name, execution, schema, few), rounds, len(few)
            )
            for name in BUILT_IN
            for execution in strategy(name).executions
        },
    }


def main() -> None:
    """Measure and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cache", type=Path, default=Path(".cache/serde_lab/to_files"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = json.dumps(measured(given.rows, given.rounds, given.cache), indent=1) + "\n"
    if given.write:
        RESULT.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
