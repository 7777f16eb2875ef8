"""The input batches of a scenario: folders of parquet parts, made once and kept.

Owns the cache: where it is, what makes a kept folder stale, and the checksums of the contents. One
folder a request, one `PartFolder` a batch; nothing but a finished one is ever read.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import DataError, LabError, ScenarioError, SetupError, UsageError
from serde_lab.lab import own_files
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.identity import data_hash
from serde_lab.scenario.model import Batch, ParquetData, Scenario, TpchData
from tpch.batches import Batch as Shares
from tpch.generate import generate, generator_version
from tpch.key_range import onto_a_third
from tpch.parts import Manifest, PartFolder, write_parts
from tpch.progress import Progress, silent
from tpch.rows import ParquetRows
from tpch.tables import TABLES
from tpch.updates import DERIVATION, ROWS_PER_PIECE, UpdateStream

Say = Callable[[str], None]

_DIFFERENT_KEYS = "different_keys"


@dataclass(frozen=True, slots=True)
class CommitInput:
    """One batch on disk. Input order is the order of `files`, then that of the rows in each."""

    name: str
    operation: str
    folder: Path
    files: tuple[Path, ...]
    rows: int
    content: str
    different_keys: int | None = None
    """Counted where rows were made to share keys."""


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """All batches of a scenario, the schema of their rows, and the checksums of their contents.

    `folder` is where they are kept; `reused` tells whether all of them were there before.
    """

    folder: Path
    reused: bool
    setups: tuple[CommitInput, ...]
    commits: tuple[CommitInput, ...]
    record_schema: RecordSchema
    checksums: Mapping[str, str]


def default_cache(environment: Mapping[str, str] | None = None) -> Path:
    """SERDE_LAB_CACHE, else `serde_lab` in XDG_CACHE_HOME, else `.cache/serde_lab` right here."""
    known = os.environ if environment is None else environment
    if known.get("SERDE_LAB_CACHE"):
        return Path(known["SERDE_LAB_CACHE"])
    if known.get("XDG_CACHE_HOME"):
        return Path(known["XDG_CACHE_HOME"]) / "serde_lab"
    return Path(".cache") / "serde_lab"


def are_prepared(scenario: Scenario, cache: Path | None = None) -> bool:
    """Whether the input batches of `scenario` are there."""
    asked = _request(scenario)
    folder = _folder(scenario, default_cache() if cache is None else cache, asked)
    return _finished(scenario, folder, asked) is not None


def prepare_inputs(
    scenario: Scenario,
    cache: Path | None = None,
    say: Say = lambda text: None,
    progress: Progress = silent,
) -> PreparedInputs:
    """Make the input batches of `scenario`, or find those that were made before.

    `say` hears what is done and where it is kept. Raises ScenarioError, SchemaError or DataError for
    what cannot be derived or written, before any table is; UsageError or SetupError if the cache
    cannot be written.
    """
    cache = default_cache() if cache is None else cache
    own_files.check_sources(scenario)
    asked = _request(scenario)
    folder = _folder(scenario, cache, asked)
    try:
        with _alone(cache, say):
            found = _finished(scenario, folder, asked)
            if found is None:
                say(f"making the input batches in {folder}")
                found = _make(scenario, cache, folder, asked, say, progress)
                reused = False
            else:
                say(f"input batches were there, in {folder}")
                reused = True
    except PermissionError as exc:
        raise UsageError(
            f"the cache {cache} cannot be written: {exc.strerror}", "see SERDE_LAB_CACHE"
        ) from exc
    except OSError as exc:
        raise SetupError(f"the cache {cache} cannot be written: {exc.strerror or exc}") from exc
    inputs = [
        CommitInput(
            name=name,
            operation=batch.operation,
            folder=folder / name,
            files=tuple(manifest.files(folder / name)),
            rows=manifest.rows,
            content=manifest.content,
            different_keys=manifest.notes.get(_DIFFERENT_KEYS),
        )
        for (name, batch), manifest in zip(_named(scenario), found, strict=True)
    ]
    return PreparedInputs(
        folder=folder,
        reused=reused,
        setups=tuple(inputs[: len(scenario.setups)]),
        commits=tuple(inputs[len(scenario.setups) :]),
        record_schema=record_schema(scenario, pq.read_schema(inputs[0].files[0])),
        checksums={one.name: one.content for one in inputs},
    )


def record_schema(scenario: Scenario, data: pa.Schema) -> RecordSchema:
    """The schema of the table: `data` without what the parquet file says besides types."""
    plain = pa.schema([pa.field(field.name, field.type, field.nullable) for field in data])
    return RecordSchema(
        data=plain,
        record_key=scenario.data.record_key,
        partition=scenario.data.partition,
        ordering=scenario.ordering,
    )


def _folder(scenario: Scenario, cache: Path, asked: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    data = scenario.data
    label = f"{data.table}-{data.scale_factor:g}" if isinstance(data, TpchData) else "parquet"
    # not by the scenario's name: scenarios that ask for the same rows share them
    return (cache / "inputs" / f"{label}-{digest[:12]}").resolve()


def _named(scenario: Scenario) -> list[tuple[str, Batch]]:
    """Batches with names of folders: `setup-1`, `commit-1` and so on."""
    return [(key.replace(".", "-"), batch) for key, batch in scenario.named_batches]


def _request(scenario: Scenario) -> dict[str, Any]:
    """Everything that the rows depend on: equal requests give equal contents."""
    request: dict[str, Any] = {"scenario": data_hash(scenario), "derivation": DERIVATION}
    if isinstance(scenario.data, TpchData):
        request["generator"] = generator_version()
    else:
        paths = [("data.path", scenario.data.path)]
        paths += [(f"{k}.path", b.path) for k, b in scenario.named_batches if b.path is not None]
        request["files"] = [
            [str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns]
            for key, path in paths
            for file in own_files.find_files(key, path)
        ]
    return request


@contextmanager
def _alone(cache: Path, say: Say) -> Iterator[None]:
    """One process at a time in one cache; the lock goes with the process, however that ends."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that makes data in {cache}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _finished(scenario: Scenario, folder: Path, asked: Mapping[str, Any]) -> list[Manifest] | None:
    found = []
    for name, _ in _named(scenario):
        manifest = PartFolder(folder / name).manifest()
        if manifest is None or manifest.asked != asked:
            return None
        found.append(manifest)
    return found


def _make(
    scenario: Scenario,
    cache: Path,
    folder: Path,
    asked: Mapping[str, Any],
    say: Say,
    progress: Progress,
) -> list[Manifest]:
    source = _source(scenario, cache, say, progress)
    derived, stream = _derived(scenario, source)
    made: list[Manifest] = []
    for number, (key, batch) in enumerate(scenario.named_batches):
        target = PartFolder(folder / key.replace(".", "-"))
        if batch.path is None:
            assert stream is not None
            at = derived.index(number)
            tables, schema = _keyed(stream.tables(at), scenario, source), stream.schema
            rows = stream.counts[at].rows
        else:
            earlier = [
                file
                for manifest, (name, _) in zip(made, _named(scenario), strict=False)
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
            notes[_DIFFERENT_KEYS] = own_files.different_keys(files, scenario.data.record_key)
            keys = f", {notes[_DIFFERENT_KEYS]:,} different keys"
        manifest = target.finish(asked, parts, notes)
        say(
            f"{key}: {manifest.rows:,} rows{keys} in {len(manifest.parts)} parts,"
            f" {manifest.content[:19]}"
        )
        made.append(manifest)
    return made


def _source(scenario: Scenario, cache: Path, say: Say, progress: Progress) -> ParquetRows:
    """The rows that batches are derived from, checked."""
    data = scenario.data
    if isinstance(data, TpchData):
        by = generator_version().replace(" ", "-")
        out = cache / "tpch" / by / f"scale-factor-{data.scale_factor:g}"
        made = generate(data.table, data.scale_factor, out, progress=progress)
        done = "was there" if made.reused else "generated"
        say(f"{data.table}, {made.manifest.rows:,} rows, {done}, in {made.folder.resolve()}")
        return ParquetRows(made.manifest.files(made.folder))
    rows = own_files.open_source(data)
    own_files.check_nulls("data.path", rows, data.path, scenario)
    return rows


def _derived(scenario: Scenario, source: ParquetRows) -> tuple[list[int], UpdateStream | None]:
    """The numbers of the derived batches, and the stream that makes them."""
    named = scenario.named_batches
    numbers = [n for n, (_, batch) in enumerate(named) if batch.path is None]
    if not numbers:
        return [], None
    data = scenario.data
    # TPC-H's primary keys are unique by its specification
    primary = TABLES[data.table].primary_key if isinstance(data, TpchData) else ()
    known = data.keyless or data.record_key == primary
    repeated = 0 if known else own_files.repeated_keys(source.files, data.record_key)
    if repeated:
        raise DataError(
            f"data.key: {', '.join(data.record_key)} is not unique, {repeated:,} keys stand in "
            f"several of the {source.rows:,} rows, and batches can be derived from unique keys only",
            "name more columns, or give each batch its own `path`"
            if isinstance(data, ParquetData)
            else "name more columns",
        )
    try:
        stream = UpdateStream(
            source,
            [_shares(named[n][1], source.rows) for n in numbers],
            # past the end of TPC-H's rows new ones are made, told by its primary key
            key=primary if data.keyless else data.record_key,
            partition=data.partition,
            ordering=None if data.keyless else data.own_ordering,
            seed=data.seed,
            new_keys=isinstance(data, TpchData),
            names=[named[n][0] for n in numbers],
        )
    except (UsageError, DataError) as exc:
        raise _of_scenario(scenario, exc) from exc
    return numbers, stream


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


def _of_scenario(scenario: Scenario, exc: LabError) -> LabError:
    return ScenarioError(f"scenario {scenario.name}: {exc.message}", exc.hint)


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
                f"{key}.path: {repeated:,} keys of {batch.path} stand in several rows or are stored "
                "already, and a bulk_insert does not combine rows",
                "make it an upsert",
            )
    names = [name for name in source.schema.names if name in rows.schema.names]
    tables = (_whole(table, source.schema) for table in rows.batches(ROWS_PER_PIECE, names))
    return tables, source.schema, rows.rows


def _whole(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with nulls in the columns that it lacks, which only deletes may lack."""
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
    tables: Iterable[pa.Table], task: str, rows: int, progress: Progress
) -> Iterator[pa.Table]:
    done = 0
    for table in tables:
        # before it is handed on: who takes the last one does not come back for more
        done += len(table)
        progress(task, done, rows)
        yield table
