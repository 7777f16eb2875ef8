"""Finds and checks the user's own parquet files.

Columns, types, nulls and repeated keys are checked before anything runs.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from serde_lab.errors import DataError, SchemaError
from serde_lab.inputs.parquet_rows import ParquetRows
from serde_lab.inputs.parts import SPILL
from serde_lab.records.schema import is_nested
from serde_lab.scenario.model import ParquetData, Scenario
from serde_lab.scenario.problems import comma_separated, suggestion
from serde_lab.scenario.sections import Batch
from serde_lab.table.files.parquet import legacy_dates

_ROWS_AT_A_TIME = 1 << 20


def check_sources(scenario: Scenario) -> None:
    """Check that the files `scenario` names exist, agree, and have the right columns and types.

    Reads no row; does nothing for data of TPC-H. Raises DataError or SchemaError, naming key, file
    and column.
    """
    if isinstance(scenario.data, ParquetData):
        rows = open_source(scenario.data)
        for key, batch in scenario.named_batches:
            if batch.path is not None:
                open_batch(key, batch, rows, scenario)


def find_files(key: str, path: str) -> list[Path]:
    """The parquet files of a file, folder or glob, sorted by name.

    Raises DataError naming `key`, the scenario key that holds the path.
    """
    where = Path(path)
    if where.is_file():
        return [where]
    if where.is_dir():
        _check_readable(key, where, levels=None)
        whole = _data_files(where.rglob("*.parquet"), path)
        files = [file for file in whole if file.parent == where]
        if len(files) < len(whole):
            own = f", its own by {where / '*.parquet'}" if files else ""
            raise DataError(
                f"{key}: the folder {path} has .parquet files in subfolders",
                f"name all of them by {where / '**' / '*.parquet'}{own}",
            )
        if not files:
            raise DataError(f"{key}: the folder {path} has no .parquet file")
        return files
    if not glob.has_magic(path):
        raise DataError(f"{key}: {path} is neither a file nor a folder")
    parts = where.parts
    first = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    levels = None if "**" in parts else len(parts) - first - 1
    _check_readable(key, Path(*parts[:first]), levels)
    files = _data_files(map(Path, glob.glob(path, recursive=True)), path)  # noqa: PTH207 - absolute patterns
    if not files:
        raise DataError(f"{key}: no file matches {path}")
    return files


def _check_readable(key: str, top: Path, levels: int | None) -> None:
    """Raise DataError if `top`, or a folder up to so many levels below it, cannot be read.

    A glob leaves out its files.
    """

    def refuse(exc: OSError) -> None:
        if not isinstance(exc, FileNotFoundError | NotADirectoryError):
            raise DataError(f"{key}: {exc.filename} cannot be read: {exc.strerror}") from exc

    for place, folders, _ in os.walk(top, onerror=refuse):
        last = levels is not None and len(Path(place).parts) - len(top.parts) >= levels
        folders[:] = [] if last else [name for name in folders if not _hides(name)]


def _data_files(found: Iterable[Path], path: str) -> list[Path]:
    return [file for file in sorted(found) if file.is_file() and not _is_hidden(file, path)]


def _is_hidden(file: Path, path: str) -> bool:
    """Whether it is a marker of another program, such as _SUCCESS, or lies in its folder, such as _temporary.

    Spark skips those as well, but not _a=1, the folder of a column. What `path` names is no marker.
    """
    below = [part for part in file.parts if part not in Path(path).parts]
    return any(map(_hides, below))


def _hides(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def open_source(data: ParquetData) -> ParquetRows:
    """The rows of `data.path`, with types and the key, partition and ordering columns checked."""
    rows = ParquetRows(find_files("data.path", data.path))
    _check_calendar("data.path", rows)
    names = rows.schema.names
    for role in ("key", "partition", "ordering"):
        for name in getattr(data, role):
            if name not in names:
                raise SchemaError(
                    f"data.{role}: {data.path} has no column {name!r}; its columns are "
                    f"{comma_separated(names)}{suggestion(name, names)}"
                )
            t = rows.schema.field(name).type
            if is_nested(t):
                raise SchemaError(
                    f"data.{role}: column {name!r} has the type {t}, expected a type without nesting"
                )
    _some(rows, "data.path", data.path)
    return rows


def open_batch(key: str, batch: Batch, source: ParquetRows, scenario: Scenario) -> ParquetRows:
    """The rows of a batch's own `path`: the columns and types of the data, in any order.

    Files of a delete need only the key, partition and ordering columns.
    """
    assert batch.path is not None
    place = f"{key}.path"
    rows = ParquetRows(find_files(place, batch.path))
    _check_calendar(place, rows)
    found, wanted = rows.schema, source.schema
    needed = wanted.names if batch.operation != "delete" else role_columns(scenario)
    missing = [name for name in needed if name not in found.names]
    if missing:
        raise SchemaError(
            f"{place}: {batch.path} lacks column {comma_separated(missing)} of data.path"
        )
    for field in found:
        if field.name not in wanted.names:
            raise SchemaError(
                f"{place}: {batch.path} has a column {field.name!r} that is not in "
                f"data.path{suggestion(field.name, wanted.names)}"
            )
        expected = wanted.field(field.name).type
        if field.type != expected:
            raise SchemaError(
                f"{place}: column {field.name!r} of {batch.path} has the type {field.type}, "
                f"expected {expected} as in data.path"
            )
    _some(rows, place, batch.path)
    return rows


def role_columns(scenario: Scenario) -> list[str]:
    """The key, partition and ordering columns, each once."""
    data = scenario.data
    return list(dict.fromkeys([*data.record_key, *data.partition, *data.own_ordering]))


def check_nulls(key: str, rows: ParquetRows, where: str, scenario: Scenario) -> None:
    """Raise DataError, with the number of rows, if a key or an ordering value is null."""
    data = scenario.data
    roles = dict.fromkeys(data.record_key, "the record key") | dict.fromkeys(
        data.own_ordering, "the ordering value"
    )
    if not roles:
        return
    nulls = dict.fromkeys(roles, 0)
    for batch in rows.batches(_ROWS_AT_A_TIME, list(roles)):
        for name in roles:
            nulls[name] += batch.column(name).null_count
    for name, number in nulls.items():
        if number:
            raise DataError(
                f"{key}: column {name!r}, {roles[name]}, is null in {number:,} of {rows.rows:,} "
                f"rows of {where}"
            )


_FILES = "read_parquet(?, hive_partitioning = false)"
"""The rows of files as they are: folders like `id=1` are no columns."""


def repeated_keys(
    files: Sequence[Path], columns: Iterable[str], earlier: Sequence[Path] = ()
) -> int:
    """The number of keys that occur more than once in `files`, or in `files` and in `earlier`."""
    keys = _quoted(columns)
    query = f"SELECT {keys}, false AS old FROM {_FILES}"
    groups = [files]
    if earlier:
        query += f" UNION ALL SELECT DISTINCT {keys}, true FROM {_FILES}"
        groups.append(earlier)
    query = (
        f"SELECT count(*) FROM (SELECT 1 FROM ({query}) GROUP BY {keys} "
        "HAVING count(*) > 1 AND NOT bool_and(old))"
    )
    return _counted(query, groups, {})


def different_keys(files: Sequence[Path], columns: Iterable[str]) -> int:
    """The number of different keys in `files`; works out of core, with temporary files beside them."""
    query = f"SELECT count(*) FROM (SELECT DISTINCT {_quoted(columns)} FROM {_FILES})"
    spill = files[0].parent / SPILL
    config = {"memory_limit": "2048MB", "threads": 2, "temp_directory": str(spill)}
    try:
        return _counted(query, [files], config)
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def _quoted(columns: Iterable[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in columns)


def _counted(query: str, groups: Sequence[Sequence[Path]], config: dict[str, Any]) -> int:
    """The one number that DuckDB answers; each group of files is an argument of the query."""
    # DuckDB takes a name for a pattern
    named = [[glob.escape(str(file)) for file in files] for files in groups]
    try:
        with duckdb.connect(config=config) as connection:
            return int(connection.execute(query, named).fetchall()[0][0])
    except duckdb.Error as exc:
        more = " and other files" if sum(map(len, named)) > 1 else ""
        why = str(exc).splitlines()[0]
        raise DataError(f"{groups[0][0]}{more}: DuckDB cannot count the keys: {why}") from exc


def _some(rows: ParquetRows, key: str, path: str) -> None:
    if not rows.rows:
        raise DataError(f"{key}: {path} has no rows")


def _check_calendar(key: str, rows: ParquetRows) -> None:
    """Refuse dates of Spark's legacy calendar, which Spark converts and Arrow takes for other days."""
    for file, footer in zip(rows.files, rows.footers, strict=True):
        old = legacy_dates(footer, rows.schema.names)
        if old:
            raise DataError(
                f"{key}: column {old[0]!r} of {file} may hold dates or times before 1900 in the legacy"
                " calendar of older Spark releases",
                "write the file anew with Spark 3, which converts them",
            )
