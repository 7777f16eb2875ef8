"""Makes the batches that a codec run encodes and decodes: the scenario's own records, and made-up tables.

The cases are: the records of the first commit at every batch size; every column type at every batch size
(eight such columns and one of bool, to compare with the bool column alone); and tables of every width
with every share of strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.errors import ScenarioError
from serde_lab.lab.inputs.prepared import PreparedInputs
from serde_lab.pipeline.stages import stored_form
from serde_lab.records.keys import NOWHERE, KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.model import Scenario
from serde_lab.serde.interface import Frames

Group = Literal["record", "type", "width"]

# the types of the columns that are not strings, in turn
_OTHER_TYPES = ("int64", "decimal", "int32", "date", "double", "timestamp")
BARE = "bool alone"
COLUMNS = 8
"""Number of columns of one type that are added to the single bool column."""
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", "S1")


@dataclass(frozen=True, slots=True)
class CodecCase:
    """One batch. `columns` counts data columns; `type` and `string_share` are set where they apply."""

    group: Group
    rows: int
    columns: int
    type: str = ""
    string_share: float | None = None

    @property
    def name(self) -> str:
        """`record x 1000`, `int64 x 1000`, `20 columns, 25 % strings x 10000`."""
        what = self.type or "record"
        if self.string_share is not None:
            what = f"{self.columns} columns, {100 * self.string_share:g} % strings"
        return f"{what} x {self.rows}"

    def to_json(self) -> dict[str, Any]:
        """The case as run.json stores it."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True, slots=True)
class CodecBatch:
    """A case with its rows, envelope columns first, in their own memory."""

    case: CodecCase
    schema: RecordSchema
    rows: pa.RecordBatch


def codec_cases(scenario: Scenario, record_columns: int) -> tuple[CodecCase, ...]:
    """The cases of `[codec]` in order; `record_columns` counts the columns of the scenario's own records."""
    codec = scenario.codec
    found = [CodecCase("record", rows, record_columns) for rows in codec.batch_rows]
    if codec.types:
        for rows in codec.batch_rows:
            found.append(CodecCase("type", rows, 1, BARE))
            found += [CodecCase("type", rows, 1 + COLUMNS, kind) for kind in codec.types]
    found += [
        CodecCase("width", codec.width_rows, width, string_share=share)
        for width in codec.widths
        for share in codec.string_shares
    ]
    return tuple(found)


def codec_batches(
    scenario: Scenario, inputs: PreparedInputs, schema: RecordSchema
) -> Iterator[CodecBatch]:
    """Yield the rows of every case, made on demand; `schema` is that of the scenario's own records."""
    keys = KeyGenerator(schema, scenario.table.hive_style, scenario.table.url_encode)
    for case in codec_cases(scenario, len(schema.data)):
        if case.group == "record":
            rows = first_rows(inputs, schema, case.rows)
            yield CodecBatch(case, schema, keys.envelop(rows, NOWHERE))
            continue
        made_up, batch = batch_of(_columns(case), case.rows)
        yield CodecBatch(case, made_up, batch)


def check_codec_rows(scenario: Scenario, inputs: PreparedInputs) -> None:
    """Raise ScenarioError unless the first commit has enough rows for the largest batch."""
    there, wanted = inputs.commits[0].rows, max(scenario.codec.batch_rows)
    if there < wanted:
        raise ScenarioError(
            f"{scenario.name}: codec.batch_rows needs {wanted:,} records, but commit.1 has only"
            f" {there:,} rows"
        )


def first_rows(inputs: PreparedInputs, schema: RecordSchema, most: int) -> pa.RecordBatch:
    """The first rows of the first commit, at most `most`, in stored form."""
    found: list[pa.RecordBatch] = []
    missing = most
    for file in inputs.commits[0].files:
        for batch in pq.ParquetFile(file).iter_batches(min(most, 1 << 16)):
            found.append(stored_form(batch.slice(0, missing), schema.data))
            missing -= len(found[-1])
            if not missing:
                return pa.concat_batches(found)
    return pa.concat_batches(found or [pa.RecordBatch.from_pylist([], schema=schema.data)])


def frame_bytes(frames: Frames) -> int:
    return int(pc.sum(pc.binary_length(frames.frame), min_count=0).as_py())


def _columns(case: CodecCase) -> Sequence[pa.Array]:
    if case.group == "type":
        kinds = ["bool", *([case.type] * (case.columns - 1))]
    else:
        strings = round(case.columns * (case.string_share or 0.0))
        others = [_OTHER_TYPES[i % len(_OTHER_TYPES)] for i in range(case.columns - strings)]
        kinds = [*others, *["string"] * strings]
    return [values_of(kind, case.rows, seed) for seed, kind in enumerate(kinds)]


def values_of(kind: str, rows: int, seed: int) -> pa.Array:
    """Values of the type `kind`, as `serde/expected_costs.toml` describes them; no nulls."""
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
        # the two keys of a map must differ, so their first letters do
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
    """A batch of these columns with an envelope: a key of 28 letters and a file id of 38."""
    draw = np.random.default_rng(1)
    data = pa.schema([pa.field(f"c{i}", column.type) for i, column in enumerate(columns)])
    schema = RecordSchema(data, record_key=("c0",))
    constants = ["", "00000003-5c2f-4a6b-9d1e-0123456789ab-0", "U", "I", False]
    envelope = [_text(draw, rows, 28), *(pa.repeat(value, rows) for value in constants)]
    return schema, pa.record_batch([*envelope, *columns], schema=schema.batch_schema)
