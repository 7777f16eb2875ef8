"""Writes the rows of a scenario's batches: generated, derived, or read from the user's own files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_lab.errors import DataError, ScenarioError, UsageError
from serde_lab.inputs.draws import onto_a_third
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.parts import Manifest, OnProgress, PartFolder, write_parts
from serde_lab.inputs.shares import Shares
from serde_lab.inputs.update_stream import ROWS_PER_PIECE, UpdateStream
from serde_lab.lab.inputs import own_files
from serde_lab.scenario.model import Batch, ParquetData, Scenario, TpchData
from tpch import TABLES, RefreshStream, generate, generator_version

Say = Callable[[str], None]

DIFFERENT_KEYS = "different_keys"
"""Key of a manifest's note: the number of different keys, if rows were made to share keys."""


def named_batches(scenario: Scenario) -> list[tuple[str, Batch]]:
    """Batches with the names of their folders: `setup-1`, `commit-1` and so on."""
    return [(key.replace(".", "-"), batch) for key, batch in scenario.named_batches]


def make_batches(
    scenario: Scenario,
    cache: Path,
    folder: Path,
    request: Mapping[str, Any],
    say: Say,
    progress: OnProgress,
) -> list[Manifest]:
    """Write every batch into its folder below `folder`; each manifest records `request`.

    Raises ScenarioError or DataError if the rows cannot be provided.
    """
    source = _source(scenario, cache, say, progress)
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
            tables, schema = _keyed(stream.tables(at), scenario, source), stream.schema
            rows = stream.counts[at].rows
        else:
            earlier = [
                file
                for manifest, (name, _) in zip(made, named_batches(scenario), strict=False)
                for file in manifest.files(folder / name)
            ]
            own = _own_batch(scenario, key, batch, source, earlier)
            tables, schema, rows = own
        target.begin()
        written = write_parts(
            target.folder,
            _counted(tables, f"{key}: rows", rows, progress),
            schema,
            rows,
            scenario.data.input_partitions,
        )
        parts = list(written)
        notes: dict[str, Any] = {"batch": key}
        keys = ""
        if _shares_keys(scenario):
            files = [target.folder / part.name for part in parts]
            notes[DIFFERENT_KEYS] = own_files.different_keys(files, scenario.data.record_key)
            keys = f", {notes[DIFFERENT_KEYS]:,} different keys"
        manifest = target.finish(request, parts, notes)
        say(
            f"{key}: {manifest.rows:,} rows{keys} in {len(manifest.parts)} parts,"
            f" {manifest.content[:19]}"
        )
        made.append(manifest)
    return made


def check_rows(scenario: Scenario) -> None:
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
            earlier += own_files.find_files(f"{key}.path", batch.path)


def _source(scenario: Scenario, cache: Path, say: Say, progress: OnProgress) -> ParquetRows:
    """The checked rows from which batches are derived."""
    data = scenario.data
    if isinstance(data, TpchData):
        by = generator_version().replace(" ", "-")
        out = cache / "tpch" / by / f"scale-factor-{data.scale_factor:g}"
        made = generate(data.table, data.scale_factor, out, progress=progress)
        done = "generated earlier" if made.reused else "generated"
        say(f"{data.table}, {made.manifest.rows:,} rows, {done}, in {made.folder.resolve()}")
        return ParquetRows(made.manifest.files(made.folder))
    return _own_source(scenario, data)


def _own_source(scenario: Scenario, data: ParquetData) -> ParquetRows:
    rows = own_files.open_source(data)
    own_files.check_nulls("data.path", rows, data.path, scenario)
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
    # TPC-H's specification guarantees unique primary keys
    primary = TABLES[data.table].primary_key if isinstance(data, TpchData) else ()
    known = data.keyless or data.record_key == primary
    repeated = 0 if known else own_files.repeated_keys(source.files, data.record_key)
    if repeated:
        raise DataError(
            f"data.key: {', '.join(data.record_key)} is not unique: {repeated:,} keys occur in "
            f"several of the {source.rows:,} rows, but batches can only be derived from unique keys",
            "name more columns, or give each batch its own `path`"
            if isinstance(data, ParquetData)
            else "name more columns",
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
        )
    return numbers, stream


@contextmanager
def _named(scenario: Scenario) -> Iterator[None]:
    """Raises, as ScenarioError that names the scenario, that batches cannot be derived from its data."""
    try:
        yield
    except (UsageError, DataError) as exc:
        raise ScenarioError(f"scenario {scenario.name}: {exc.message}", exc.hint) from exc


def _shares_keys(scenario: Scenario) -> bool:
    return isinstance(scenario.data, TpchData) and scenario.data.key_range != "whole"


def _keyed(
    tables: Iterator[pa.Table], scenario: Scenario, source: ParquetRows
) -> Iterator[pa.Table]:
    """`tables` with the keys that `data.key_range` asks for."""
    if not _shares_keys(scenario):
        yield from tables
        return
    name = scenario.data.record_key[0]
    extent = source.extent(name)
    greatest = int(str(extent[1])) if extent is not None else 1
    for table in tables:
        at = table.schema.get_field_index(name)
        keys = onto_a_third(table.column(at).combine_chunks(), greatest, scenario.data.seed)
        yield table.set_column(at, table.schema.field(at), keys)


def _shares(batch: Batch, source_rows: int) -> Shares:
    return Shares(
        operation=batch.operation,
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
    rows = own_files.open_batch(key, batch, source, scenario)
    own_files.check_nulls(f"{key}.path", rows, batch.path, scenario)
    if batch.operation == "bulk_insert" and not scenario.data.keyless:
        columns = dict.fromkeys([*scenario.data.record_key, *scenario.data.partition])
        repeated = own_files.repeated_keys(rows.files, columns, earlier)
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


def _counted(
    tables: Iterable[pa.Table], task: str, rows: int, progress: OnProgress
) -> Iterator[pa.Table]:
    done = 0
    for table in tables:
        # counted before the yield: a consumer of the last table does not come back
        done += len(table)
        progress(task, done, rows)
        yield table
