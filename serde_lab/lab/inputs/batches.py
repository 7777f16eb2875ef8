"""Writes the rows of a scenario's batches: generated, derived, or read from the user's own files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde_lab.errors import DataError, ScenarioError, UsageError
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.parts import Manifest, PartFolder, write_parts
from serde_lab.inputs.random_choices import onto_a_third, spread
from serde_lab.inputs.shaped_rows import innermost_values, write_rows
from serde_lab.inputs.update_stream import ROWS_PER_PIECE, Shares, UpdateStream
from serde_lab.lab.inputs import user_files
from serde_lab.records.operation import Operation
from serde_lab.scenario.model import Data, ParquetData, Scenario, TpchData
from serde_lab.scenario.sections import Batch, ShapesData
from tpch import TABLES, RefreshStream, generate, generator_version

Say = Callable[[str], None]

DIFFERENT_KEYS = "different_keys"
"""Key of a manifest's note: the number of different keys, if rows were made to share keys."""

VALUES, ARROW_BYTES = "values", "arrow_bytes"
"""Keys of a manifest's note: how many innermost values made-up rows have, and their bytes in Arrow."""

_PIECE_BYTES = 128 << 20


def named_batches(scenario: Scenario) -> list[tuple[str, Batch]]:
    """Batches with the names of their folders: `setup-1`, `commit-1` and so on."""
    return [(key.replace(".", "-"), batch) for key, batch in scenario.named_batches]


def make_batches(
    scenario: Scenario, cache: Path, folder: Path, request: Mapping[str, Any], say: Say
) -> list[Manifest]:
    """Write every batch into its folder below `folder`; each manifest records `request`.

    Raises ScenarioError or DataError if the rows cannot be provided.
    """
    source = _source(scenario, cache, say)
    derived, stream = _derived(scenario, source)
    made: list[Manifest] = []
    for number, (key, batch) in enumerate(scenario.named_batches):
        target = PartFolder(folder / key.replace(".", "-"))
        if batch.takes_no_rows:
            tables = iter(())
            schema, rows = (source.schema if stream is None else stream.schema), 0
        elif batch.path is None:
            assert stream is not None
            at = derived.index(number)
            rows, schema = stream.counts[at].rows, stream.schema
            tables = _keyed(stream.tables(at), scenario, batch, rows, source)
        else:
            earlier = [
                file
                for manifest, (name, _) in zip(made, named_batches(scenario), strict=False)
                for file in manifest.files(folder / name)
            ]
            own = _own_batch(scenario, key, batch, source, earlier)
            tables, schema, rows = own
        target.begin()
        sizes = {VALUES: 0, ARROW_BYTES: 0} if isinstance(scenario.data, ShapesData) else {}
        tables = _counted(tables, sizes) if sizes else tables
        count = scenario.data.input_partitions
        parts = list(write_parts(target.folder, tables, schema, rows, count))
        notes: dict[str, Any] = {"batch": key, **sizes}
        keys = ""
        if _shares_keys(scenario):
            files = [target.folder / part.name for part in parts]
            notes[DIFFERENT_KEYS] = user_files.different_keys(files, scenario.data.record_key)
            keys = f", {notes[DIFFERENT_KEYS]:,} different keys"
        manifest = target.finish(request, parts, notes)
        say(
            f"{key}: {manifest.rows:,} rows{keys} in {len(manifest.parts)} parts,"
            f" {manifest.content[:19]}"
        )
        made.append(manifest)
    return made


def check_batches(scenario: Scenario) -> None:
    """Raise what `make_batches` would raise for the user's own rows, and write nothing.

    A file's keys are looked up in earlier files, but not in batches that will be derived later.
    """
    data = scenario.data
    if not isinstance(data, ParquetData):
        return
    source = _own_source(scenario, data)
    _derived(scenario, source)
    earlier: list[Path] = []
    for key, batch in scenario.named_batches:
        if batch.path is not None:
            _own_batch(scenario, key, batch, source, earlier)
            earlier += user_files.find_files(f"{key}.path", batch.path)


def _source(scenario: Scenario, cache: Path, say: Say) -> ParquetRows:
    """The checked rows from which batches are derived."""
    data = scenario.data
    if isinstance(data, TpchData):
        by = generator_version().replace(" ", "-")
        factor = repr(data.scale_factor).removesuffix(".0")  # all digits, unlike `:g`
        out = cache / "tpch" / by / f"scale-factor-{factor}"
        made = generate(data.table, data.scale_factor, out)
        done = "generated earlier" if made.reused else "generated"
        say(f"{data.table}, {made.manifest.rows:,} rows, {done}, in {made.folder.resolve()}")
        return ParquetRows(made.manifest.files(made.folder))
    if isinstance(data, ShapesData):
        rows, reused = write_rows(data.shape, cache / "shapes")
        done = "made earlier" if reused else "made"
        place = rows.files[0].parent.resolve()
        say(f"{rows.rows:,} rows of {data.columns} columns, {done}, in {place}")
        return rows
    return _own_source(scenario, data)


def _own_source(scenario: Scenario, data: ParquetData) -> ParquetRows:
    rows = user_files.open_source(data)
    user_files.check_nulls("data.path", rows, data.path, scenario)
    return rows


def _derived(
    scenario: Scenario, source: ParquetRows
) -> tuple[list[int], UpdateStream | RefreshStream | None]:
    """The indexes of the derived batches, and the stream that makes them."""
    named = scenario.named_batches
    numbers = [n for n, (_, batch) in enumerate(named) if batch.derived]
    if not numbers:
        return [], None
    data = scenario.data
    if isinstance(data, TpchData) and data.refresh:
        pairs = len(named) - 1
        with _named(scenario):
            return numbers, RefreshStream(source, data.table, data.scale_factor, pairs, data.seed)
    table = TABLES[data.table] if isinstance(data, TpchData) else None
    primary = table.primary_key if table else ()
    known = data.keyless or _has_unique_keys(data)
    repeated = 0 if known else user_files.repeated_keys(source.files, data.record_key)
    if repeated:
        hint = "name more columns"
        if isinstance(data, ParquetData):
            hint += ", or give each batch its own `path`"
        elif table and data.record_key == primary:
            hint += f", or set data.scale_factor to {table.unique_from:g} or more"
        raise DataError(
            f"data.key: {', '.join(data.record_key)} is not unique: {repeated:,} keys occur in "
            f"several of the {source.rows:,} rows, but batches can only be derived from unique keys",
            hint,
        )
    with _named(scenario):
        stream = UpdateStream(
            source,
            [_shares(named[n][1], source.rows) for n in numbers],
            # past the end of TPC-H's rows the stream makes new ones, identified by the primary key
            key=primary if data.keyless else data.record_key,
            partition=data.partition,
            ordering=None if data.keyless else data.own_ordering,
            seed=data.seed,
            new_keys=isinstance(data, TpchData),
            names=[named[n][0] for n in numbers],
            rows_per_piece=_rows_per_piece(data),
        )
    return numbers, stream


def _has_unique_keys(data: Data) -> bool:
    """Whether it is known, without a look at the rows, that no two have the same key."""
    if isinstance(data, TpchData):
        table = TABLES[data.table]
        return data.record_key == table.primary_key and data.scale_factor >= table.unique_from
    return isinstance(data, ShapesData)


@contextmanager
def _named(scenario: Scenario) -> Iterator[None]:
    """Raises, as ScenarioError that names the scenario, that batches cannot be derived from its data."""
    try:
        yield
    except (UsageError, DataError) as exc:
        raise ScenarioError(f"scenario {scenario.name}: {exc.message}", exc.hint) from exc


def _rows_per_piece(data: TpchData | ParquetData | ShapesData) -> int:
    """How many rows of a batch are made at a time: fewer if rows are large."""
    if not isinstance(data, ShapesData):
        return ROWS_PER_PIECE
    return max(1, min(ROWS_PER_PIECE, _PIECE_BYTES // data.shape.row_bytes))


def _shares_keys(scenario: Scenario) -> bool:
    data = scenario.data
    if isinstance(data, ShapesData):
        return data.skew == "key"
    return isinstance(data, TpchData) and data.key_range != "whole"


def _keyed(
    tables: Iterator[pa.Table], scenario: Scenario, batch: Batch, rows: int, source: ParquetRows
) -> Iterator[pa.Table]:
    """`tables`, of `rows` rows in all, with the keys that `data.key_range` or `data.skew` asks for."""
    if not _shares_keys(scenario):
        yield from tables
        return
    if isinstance(scenario.data, ShapesData):
        yield from _one_key(tables, scenario.data, batch, rows, source)
        return
    name = scenario.data.record_key[0]
    extent = source.extent(name)
    greatest = int(str(extent[1])) if extent is not None else 1
    for table in tables:
        at = table.schema.get_field_index(name)
        keys = onto_a_third(table.column(at).combine_chunks(), greatest, scenario.data.seed)
        yield table.set_column(at, table.schema.field(at), keys)


def _one_key(
    tables: Iterator[pa.Table], data: ShapesData, batch: Batch, rows: int, source: ParquetRows
) -> Iterator[pa.Table]:
    """`tables` with the source's first key in `data.versions` rows of an upsert, evenly spread."""
    identity = (*data.record_key, *data.partition)
    first = source.read(0, 1, identity)
    done = 0
    for table in tables:
        if batch.operation == Operation.UPSERT:
            places = np.arange(done, done + len(table), dtype=np.int64)
            chosen = pa.array(spread(places, data.versions, rows))
            for name in identity:
                at = table.schema.get_field_index(name)
                values = pc.if_else(chosen, first.column(name)[0], table.column(name))
                table = table.set_column(at, table.schema.field(at), values)
        done += len(table)
        yield table


def _shares(batch: Batch, source_rows: int) -> Shares:
    return Shares(
        operation=batch.write_operation,
        rows=batch.rows_of(source_rows),
        updates=batch.updates,
        duplicates=batch.duplicates,
        late=batch.late,
        deletes=batch.deletes,
    )


def _own_batch(
    scenario: Scenario, key: str, batch: Batch, source: ParquetRows, earlier: Sequence[Path]
) -> tuple[Iterator[pa.Table], pa.Schema, int]:
    """The rows of a batch's own files, in the columns and the order of the data."""
    assert batch.path is not None
    rows = user_files.open_batch(key, batch, source, scenario)
    user_files.check_nulls(f"{key}.path", rows, batch.path, scenario)
    if batch.operation == "bulk_insert" and not scenario.data.keyless:
        columns = dict.fromkeys([*scenario.data.record_key, *scenario.data.partition])
        repeated = user_files.repeated_keys(rows.files, columns, earlier)
        if repeated:
            raise DataError(
                f"{key}.path: {repeated:,} keys of {batch.path} occur in several rows or are stored "
                "already, but a bulk_insert does not combine rows",
                "use operation upsert",
            )
    names = [name for name in source.schema.names if name in rows.schema.names]
    tables = (_whole(table, source.schema) for table in rows.batches(ROWS_PER_PIECE, names))
    return tables, source.schema, rows.rows


def _whole(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with nulls for the columns that it lacks; only the files of a delete may lack any."""
    return pa.table(
        [
            table.column(field.name)
            if field.name in table.schema.names
            else pa.nulls(len(table), field.type)
            for field in schema
        ],
        schema=schema,
    )


def _counted(tables: Iterable[pa.Table], sizes: dict[str, int]) -> Iterator[pa.Table]:
    """Yields `tables`, and adds to the totals in `sizes`."""
    for table in tables:
        # counted before the yield: a consumer of the last table does not come back
        chunks = (chunk for column in table.columns for chunk in column.chunks)
        sizes[VALUES] += sum(innermost_values(chunk) for chunk in chunks)
        sizes[ARROW_BYTES] += table.nbytes
        yield table
