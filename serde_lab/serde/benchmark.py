"""What each strategy costs for each type of column, beside what was expected; no Spark, no pipeline.

    python -m serde_lab.serde.benchmark [--rows 10000] [--repeats 5] [--strategy NAME …]
                                        [--kind KIND …] [--format table|json]

The cost of a type is marginal: a batch of eight such columns, less the batch without them, a column and
record. Nanoseconds are CPU time of this process, the least of all repeats; bytes are those of the frames.
What a strategy's module expects (EXPECTED, and EXPECTED_ROW_NS or EXPECTED_BATCH_NS for the execution that
is not its default) stands beside it. A second table sets the row strategies against the bare calls of
the libraries that they stand on, on the same Python rows: at most 1.25 is what they promise.
Owns these measurements. For regressions and claims the lab's own runs count, not these.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from serde_lab.records.schema import RecordSchema
from serde_lab.serde import registry
from serde_lab.serde.interface import Bounds, BoundSerde, Records, SerdeOptions, Strategy
from serde_lab.serde.prediction import expected_costs

COLUMNS = 8
VERBS = ("from_arrow", "encode", "decode", "to_arrow")
MOST_OVER_BARE = 1.25
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", "S1")


@dataclass(frozen=True, slots=True)
class Cost:
    """Measured and expected cost of a kind of column (or of the record itself), per value."""

    strategy: str
    execution: str
    kind: str
    bytes: float
    expected_bytes: float | None
    ns: float
    expected_ns: float | None
    verb_ns: dict[str, float]


@dataclass(frozen=True, slots=True)
class OverBare:
    """Serialising by a strategy, against the bare calls of its library, per record."""

    strategy: str
    call: str
    bare_ns: float
    encode_ns: float

    @property
    def ratio(self) -> float:
        """How many times the bare calls' time the strategy takes."""
        return self.encode_ns / self.bare_ns


def values_of(kind: str, rows: int, seed: int) -> pa.Array:
    """Values of a kind as `pickle.records.EXPECTED` describes them; no nulls."""
    draw = np.random.default_rng(seed)
    if kind.startswith("int"):
        top = 2 ** (int(kind[3:]) - 1)
        return pa.array(draw.integers(-top, top, rows, f"i{int(kind[3:]) // 8}"))
    if kind in ("list", "map"):
        per_row = 3 if kind == "list" else 2
        ends = pa.array(np.arange(0, (rows + 1) * per_row, per_row, dtype=np.int32))
        longs = values_of("int64", rows * per_row, seed)
        if kind == "list":
            return pa.ListArray.from_arrays(ends, longs)
        # keys of one map differ in their first letter
        keys = _text(draw, rows * per_row, 2).to_pylist()
        keys = [("a" if i % 2 else "b") + key for i, key in enumerate(keys)]
        return pa.MapArray.from_arrays(ends, pa.array(keys), longs)
    if kind == "struct":
        fields = [values_of("int64", rows, seed), _text(draw, rows, 12)]
        return pa.StructArray.from_arrays(fields, names=["number", "text"])
    makers: dict[str, Callable[[], pa.Array]] = {
        "bool": lambda: pa.array(draw.integers(0, 2, rows) == 1),
        "float": lambda: pa.array(draw.normal(size=rows).astype(np.float32)),
        "double": lambda: pa.array(draw.normal(size=rows)),
        "decimal": lambda: _decimals(draw.integers(-(10**15) + 1, 10**15, rows)),
        "string": lambda: _text(draw, rows, 12),
        "binary": lambda: _text(draw, rows, 12).cast(pa.binary()),
        "date": lambda: pa.array(draw.integers(0, 21_900, rows, np.int32)).view(pa.date32()),
        "timestamp": lambda: pa.array(draw.integers(0, 1_892_160_000_000_000, rows)).view(
            pa.timestamp("us")
        ),
    }
    return makers[kind]()


KINDS = (
    *("bool", "int8", "int16", "int32", "int64", "float", "double", "decimal", "string", "binary"),
    *("date", "timestamp", "list", "map", "struct"),
)


def _text(draw: np.random.Generator, rows: int, letters: int) -> pa.StringArray:
    data = np.ascontiguousarray(_LETTERS[draw.integers(0, 26, (rows, letters))])
    ends = np.arange(0, (rows + 1) * letters, letters, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(data))


def _decimals(unscaled: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    halves = np.stack([unscaled, unscaled >> 63], axis=1)
    return pa.Array.from_buffers(
        pa.decimal128(15, 2), len(unscaled), [None, pa.py_buffer(np.ascontiguousarray(halves))]
    )


def batch_of(columns: Sequence[pa.Array], rows: int) -> tuple[RecordSchema, pa.RecordBatch]:
    """A batch with an envelope (key of 28 letters, file id of 38) and these columns."""
    draw = np.random.default_rng(1)
    data = pa.schema([pa.field(f"c{i}", column.type) for i, column in enumerate(columns)])
    schema = RecordSchema(data, record_key=("c0",))
    constants = ["", "00000003-5c2f-4a6b-9d1e-0123456789ab-0", "U", "I", False]
    envelope = [_text(draw, rows, 28), *(pa.repeat(value, rows) for value in constants)]
    return schema, pa.record_batch([*envelope, *columns], schema=schema.batch_schema)


def least_ns(repeats: int, act: Callable[[], object]) -> float:
    """The least CPU time of `act`; without Python's garbage collector, which would hit at random."""
    act()
    least = float("inf")
    gc.disable()
    try:
        for _ in range(repeats):
            start = time.process_time_ns()
            outcome = act()
            least = min(least, time.process_time_ns() - start)
            del outcome
    finally:
        gc.enable()
    return least


def measure(
    bound: BoundSerde, batch: pa.RecordBatch, repeats: int
) -> tuple[dict[str, float], float]:
    """Nanoseconds of each verb, and bytes of the frames, per record."""
    rows = len(batch)
    bounds = Bounds.single(rows)
    records = bound.from_arrow(batch)
    frames = bound.encode(records, bounds)
    verbs: dict[str, Callable[[], object]] = {
        "from_arrow": lambda: bound.from_arrow(batch),
        "encode": lambda: bound.encode(records, bounds),
        "decode": lambda: bound.decode(frames.frame),
        # what has been read is kept, so that records must be new each time
        "to_arrow": lambda: bound.decode(frames.frame).to_arrow(),
    }
    found = {name: least_ns(repeats, act) / rows for name, act in verbs.items()}
    found["to_arrow"] = max(0.0, found["to_arrow"] - found["decode"])
    return found, sum(map(len, frames.frame.to_pylist())) / rows


def costs(
    strategy: Strategy, execution: str, kinds: Iterable[str], rows: int, repeats: int
) -> list[Cost]:
    """The cost of the record, then of each kind of column."""
    gc.collect()
    expected = expected_costs(strategy, execution)

    def cost(kind: str, ns: dict[str, float], size: float) -> Cost:
        hope = expected.get(kind, (None, None))
        return Cost(strategy.name, execution, kind, size, hope[0], sum(ns.values()), hope[1], ns)

    def of(columns: list[pa.Array]) -> tuple[dict[str, float], float]:
        schema, batch = batch_of(columns, rows)
        options = SerdeOptions(execution, strategy.default_rows_per_frame)  # type: ignore[arg-type]
        return measure(strategy.bind(schema, options), batch, repeats)

    # a record has a column at least: take what is known of it off again
    one = [values_of("bool", rows, 0)]
    base_ns, base_bytes = of(one)
    more_ns, more_bytes = of([values_of("bool", rows, seed) for seed in range(COLUMNS + 1)])
    record_ns = {v: base_ns[v] - (more_ns[v] - base_ns[v]) / COLUMNS for v in VERBS}
    found = [cost("record", record_ns, base_bytes - (more_bytes - base_bytes) / COLUMNS)]
    for kind in kinds:
        ns, size = of([*one, *(values_of(kind, rows, seed) for seed in range(1, COLUMNS + 1))])
        marginal = {v: (ns[v] - base_ns[v]) / COLUMNS for v in VERBS}
        found.append(cost(kind, marginal, (size - base_bytes) / COLUMNS))
    return found


def over_bare(names: Iterable[str], rows: int, repeats: int) -> list[OverBare]:
    """The row strategies against the bare calls of their libraries, on rows like lineitem's."""
    kinds = [*["int64"] * 3, "int32", *["decimal"] * 4, *["string"] * 5, *["date"] * 3]
    schema, batch = batch_of([values_of(k, rows, i) for i, k in enumerate(kinds)], rows)
    found = []
    for name in [n for n in names if n in _BARE]:
        call, bare = _BARE[name]
        bound = registry.bind(name, schema, SerdeOptions(execution="row"))
        records = bound.from_arrow(batch)
        bare_ns = least_ns(repeats, bare(records))
        encode_ns = least_ns(repeats, partial(bound.encode, records, Bounds.single(rows)))
        found.append(OverBare(name, call, bare_ns / rows, encode_ns / rows))
    return found


def _bare_pickle(records: Records) -> Callable[[], object]:
    tuples = [tuple(record) for record in records.records]  # type: ignore[attr-defined]
    return lambda: [pickle.dumps(values, 5) for values in tuples]


def _bare_fastavro(records: Records) -> Callable[[], object]:
    datums = records.datums  # type: ignore[attr-defined]
    schema, write = records.columns.fastavro, fastavro.schemaless_writer  # type: ignore[attr-defined]

    def one(datum: object) -> bytes:
        stream = io.BytesIO()
        write(stream, schema, datum)
        return stream.getvalue()

    return lambda: [one(datum) for datum in datums]


_BARE: dict[str, tuple[str, Callable[[Records], Callable[[], object]]]] = {
    "pickle": ("pickle.dumps(tuple, 5)", _bare_pickle),
    "avro": ("fastavro.schemaless_writer", _bare_fastavro),
}


def table(costs: Sequence[Cost], bare: Sequence[OverBare]) -> str:
    """Both tables as text."""
    heads = ["strategy", "execution", "kind", "bytes", "expected", "ns", "expected", *VERBS]
    lines = []
    for c in costs:
        numbers = [c.bytes, c.expected_bytes, c.ns, c.expected_ns, *(c.verb_ns[v] for v in VERBS)]
        lines.append([c.strategy, c.execution, c.kind, *map(_number, numbers)])
    bare_heads = ["strategy", "bare call", "bare ns", "encode ns", "ratio", "at most"]
    bare_lines = []
    for b in bare:
        ratios = [f"{b.ratio:.2f}", f"{MOST_OVER_BARE:.2f}"]
        times = [_number(b.bare_ns), _number(b.encode_ns)]
        bare_lines.append([b.strategy, b.call, *times, *ratios])
    return f"{_aligned([heads, *lines])}\n{_aligned([bare_heads, *bare_lines])}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pairs = [zip(line, widths, strict=True) for line in lines]
    return "".join("  ".join(cell.rjust(width) for cell, width in pair) + "\n" for pair in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m serde_lab.serde.benchmark")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--strategy", action="append", choices=registry.names())
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    chosen = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    found: list[Cost] = []
    names = chosen.strategy or registry.names()
    for name in names:
        strategy = registry.strategy(name)
        for execution in strategy.executions:
            kinds = chosen.kind or KINDS
            found += costs(strategy, execution, kinds, chosen.rows, chosen.repeats)
    bare = over_bare(names, chosen.rows, chosen.repeats)
    if chosen.format == "table":
        sys.stdout.write(table(found, bare))
    else:
        bare_rows = [{**asdict(b), "ratio": b.ratio} for b in bare]
        content = {"costs": [asdict(c) for c in found], "over_bare": bare_rows}
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
