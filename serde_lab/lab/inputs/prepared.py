"""Provides the input batches of a scenario from the cache: folders of parquet parts, made once.

The cache has one folder per request and one `PartFolder` per batch; only finished ones are read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import SetupError, UsageError
from serde_lab.files import is_utf8, locked
from serde_lab.inputs.parts import Manifest, PartFolder
from serde_lab.inputs.shaped_rows import GENERATOR
from serde_lab.inputs.update_stream import DERIVATION
from serde_lab.lab.inputs import user_files
from serde_lab.lab.inputs.batches import (
    ARROW_BYTES,
    DIFFERENT_KEYS,
    VALUES,
    Say,
    make_batches,
    named_batches,
)
from serde_lab.records.buffers import file_batches
from serde_lab.records.operation import TABLE_OPERATIONS
from serde_lab.records.schema import RecordSchema
from serde_lab.scenario.identity import data_hash
from serde_lab.scenario.model import Scenario, TpchData
from serde_lab.scenario.sections import ShapesData
from tpch import generator_version


@dataclass(frozen=True, slots=True)
class CommitInput:
    """One batch on disk. The input order is that of `files`, then that of the rows in each file."""

    name: str
    operation: str
    folder: Path
    files: tuple[Path, ...]
    rows: int
    content: str
    partitions: tuple[str, ...] = ()
    """The partition paths that a delete_partition removes."""
    different_keys: int | None = None
    """Counted only if rows were made to share keys."""
    values: int | None = None
    """The number of innermost values, nulls with them, and below the bytes that the rows have as Arrow holds
    them; both are counted only for made-up rows."""
    arrow_bytes: int | None = None

    @property
    def sends_rows(self) -> bool:
        """Whether whole rows cross the shuffle: of a delete only the keys do."""
        return self.operation not in ("delete", "delete_partition", *TABLE_OPERATIONS)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Its rows in their order, at most so many at once."""
        for file in self.files:
            yield from file_batches(file, None, rows)


@dataclass(frozen=True, slots=True)
class PreparedInputs:
    """All batches of a scenario, the schema of their rows, and the checksums of their contents.

    `folder` is where they are stored; `reused` says whether all of them existed before.
    """

    folder: Path
    reused: bool
    setups: tuple[CommitInput, ...]
    commits: tuple[CommitInput, ...]
    record_schema: RecordSchema
    checksums: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """One of the tables that a cell writes, as a scenario of one table, with its input on disk.

    `schema` is that of the records that every arm sends.
    """

    name: str
    scenario: Scenario
    inputs: PreparedInputs
    schema: RecordSchema


def default_cache(environment: Mapping[str, str] | None = None) -> Path:
    """SERDE_LAB_CACHE, else `serde_lab` in XDG_CACHE_HOME, else `.cache/serde_lab` in the current folder."""
    known = os.environ if environment is None else environment
    if known.get("SERDE_LAB_CACHE"):
        return Path(known["SERDE_LAB_CACHE"])
    if known.get("XDG_CACHE_HOME"):
        return Path(known["XDG_CACHE_HOME"]) / "serde_lab"
    return Path(".cache") / "serde_lab"


def are_prepared(scenario: Scenario, cache: Path | None = None) -> bool:
    """Whether the input batches of `scenario` exist."""
    request = _request(scenario)
    folder = _folder(scenario, default_cache() if cache is None else cache, request)
    return _finished(scenario, folder, request) is not None


def prepare_inputs(
    scenario: Scenario, cache: Path | None = None, say: Say = lambda text: None
) -> PreparedInputs:
    """Make the input batches of `scenario`, or find those made before.

    `say` gets messages about each step and its folder. Raises ScenarioError, SchemaError or DataError,
    before any table is written, if the data cannot be derived or written. Raises UsageError or SetupError
    if the cache cannot be written.
    """
    cache = default_cache() if cache is None else cache
    if not is_utf8(cache):
        raise UsageError(
            f"the cache {str(cache)!r} has a name that is not UTF-8",
            "SERDE_LAB_CACHE or --cache names another folder",
        )
    user_files.check_sources(scenario)
    request = _request(scenario)
    folder = _folder(scenario, cache, request)
    try:
        with locked(cache, f"waiting for another run that is writing input data to {cache}", say):
            found = _finished(scenario, folder, request)
            if found is None:
                say(f"writing the input batches to {folder}")
                found = make_batches(scenario, cache, folder, request, say)
                reused = False
            else:
                say(f"using the input batches in {folder}")
                reused = True
    except PermissionError as exc:
        raise UsageError(
            f"the cache {cache} cannot be written: {exc.strerror}",
            "SERDE_LAB_CACHE or --cache names another folder",
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
            partitions=batch.partitions,
            different_keys=manifest.notes.get(DIFFERENT_KEYS),
            values=manifest.notes.get(VALUES),
            arrow_bytes=manifest.notes.get(ARROW_BYTES),
        )
        for (name, batch), manifest in zip(named_batches(scenario), found, strict=True)
    ]
    return PreparedInputs(
        folder=folder,
        reused=reused,
        setups=tuple(inputs[: len(scenario.setups)]),
        commits=tuple(inputs[len(scenario.setups) :]),
        record_schema=_record_schema(scenario, pq.read_schema(inputs[0].files[0])),
        checksums={one.name: one.content for one in inputs},
    )


def _record_schema(scenario: Scenario, data: pa.Schema) -> RecordSchema:
    """The schema of the table: names and types of `data`, without the other metadata of the parquet file."""
    plain = pa.schema([pa.field(field.name, field.type, field.nullable) for field in data])
    return RecordSchema(
        data=plain,
        record_key=scenario.data.record_key,
        partition=scenario.data.partition,
        ordering=scenario.ordering,
    )


def _folder(scenario: Scenario, cache: Path, request: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    data = scenario.data
    if isinstance(data, TpchData):
        label = f"{data.table}-{data.scale_factor:g}"
    else:
        label = f"shapes-{data.rows}" if isinstance(data, ShapesData) else "parquet"
    # the scenario's name is left out, so that scenarios which ask for the same rows share the folder
    return Path(os.path.realpath(cache / "inputs" / f"{label}-{digest[:12]}"))


def _request(scenario: Scenario) -> dict[str, Any]:
    """Everything that the rows depend on; equal requests give equal contents."""
    request: dict[str, Any] = {"scenario": data_hash(scenario), "derivation": DERIVATION}
    if isinstance(scenario.data, TpchData):
        request["generator"] = generator_version()
    elif isinstance(scenario.data, ShapesData):
        request["generator"] = GENERATOR
    else:
        paths = [("data.path", scenario.data.path)]
        paths += [(f"{k}.path", b.path) for k, b in scenario.named_batches if b.path is not None]
        # the time of the last change, which no program sets: a copy may keep size and time of the last write
        request["files"] = [
            [str(file.resolve()), file.stat().st_size, file.stat().st_ctime_ns]
            for key, path in paths
            for file in user_files.find_files(key, path)
        ]
    return request


def _finished(
    scenario: Scenario, folder: Path, request: Mapping[str, Any]
) -> list[Manifest] | None:
    found = []
    for name, _ in named_batches(scenario):
        manifest = PartFolder(folder / name).manifest()
        if manifest is None or manifest.request != request:
            return None
        found.append(manifest)
    return found
