"""Apache Hudi and the lab as writers of the steps of a history."""

from __future__ import annotations

import errno
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError, PortabilityWarning
from serde_lab.peers.apache_hudi import root_cause
from serde_lab.pipeline.commit.table_services import (
    archive_now,
    clean_now,
    compact,
    resize_buckets_now,
    roll_back_now,
)
from serde_lab.pipeline.exchange.in_process import InProcessExchange
from serde_lab.pipeline.options.write import parse_options
from serde_lab.pipeline.read import open_table
from serde_lab.pipeline.spark.tables import write
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.table.services.bucket_resizing import ResizeRules
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.differential import version_8
from tests.differential.columns import to_arrow
from tests.differential.history import Step
from tests.differential.kind import Kind
from tests.faults.scripted_storage import ScriptedStorage
from tests.peers.hudi_options import HudiWrite, write_options
from tests.peers.lab_writer import lab_options
from tests.peers.procedures import call
from tests.table import savepoints

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AS_STORED = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Apache Hudi reads and writes dates of any year as they are stored; else Spark refuses old ones."""

COMBINE = "hoodie.combine.before.insert"
PARTITIONS = "hoodie.datasource.write.partitions.to.delete"
_COMPLETED = {"+commit", "+deltacommit", "+replacecommit"}


@contextmanager
def conf_set(session: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """The session with other settings, for a while."""
    before = {key: session.conf.get(key) for key in conf}
    for key, value in conf.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            session.conf.set(key, str(value))


class FailedError(Exception):
    """A table could not be written or read, and what was said of it."""


class Writer(Protocol):
    """Does one step on the table at `path`; whether it was done in full. Raises FailedError."""

    def do(self, path: str, kind: Kind, step: Step) -> bool: ...


@dataclass(frozen=True)
class InProcess:
    """The lab without Spark."""

    def do(self, path: str, kind: Kind, step: Step) -> bool:
        try:
            with warnings.catch_warnings():
                # which columns other versions of Hudi cannot read is not the matter here
                warnings.simplefilter("ignore", PortabilityWarning)
                if not step.writes:
                    _serve(path, step.operation)
                    return True
                with _undone(path, step):
                    return self._write(path, kind, step) and not step.undone
        except (LabError, pa.ArrowException, ValueError, KeyError, TypeError) as exc:
            raise FailedError(_short(f"{type(exc).__name__}: {exc}")) from exc

    def _write(self, path: str, kind: Kind, step: Step) -> bool:
        _make_if_missing(path, kind)
        storage = Storage.open(Path(path))
        if step.killed_at >= 0:
            storage = ScriptedStorage.open(Path(path))
            storage.number, storage.mode = step.killed_at, "down"
            storage.fault = OSError(errno.EIO, "killed")
        try:
            _commit(storage, kind, step)
        except (LabError, OSError):
            if not (isinstance(storage, ScriptedStorage) and storage.raised):
                raise
            return bool(_COMPLETED.intersection(storage.steps))
        return True


@contextmanager
def _undone(path: str, step: Step) -> Iterator[None]:
    """Rolls back the writes that complete meanwhile, if the step says so."""
    there = step.undone and HoodieTable.exists(Storage.open(Path(path)))
    before = open_table(path).timeline().completed() if there else ()
    yield
    if step.undone:
        table = open_table(path)
        savepoints.undo(table, set(table.timeline().completed()).difference(before))


def _make_if_missing(path: str, kind: Kind) -> None:
    if kind.version == 8 and not (Path(path) / ".hoodie").exists():
        version_8.make_table(path, kind)


def _commit(storage: Storage, kind: Kind, step: Step) -> None:
    stored = HoodieTable.open(storage).config if HoodieTable.exists(storage) else None
    table = _rows(kind, step)
    prepared = PreparedWrite.of(storage, table.schema, parse_options(_options(kind, step), stored))
    size = -(-len(table) // step.files) or 1
    parts = [table.slice(start, size).to_batches() for start in range(0, len(table), size)]
    prepared.commit(InProcessExchange(parts))


def _serve(path: str, operation: str) -> None:
    table = open_table(path)
    if operation == "compact":
        compact(table)
    elif operation == "clean":
        clean_now(table, 1)
    elif operation == "archive":
        if table.config.version > 6:
            archive_now(table, 1, 2)
    elif operation == "rollback":
        roll_back_now(table)
    elif operation == "savepoint":
        savepoints.save_now(table)
    elif operation == "restore":
        roll_back_now(table)
        savepoints.restore_now(table)
    else:
        split = operation == "split"
        rules = ResizeRules(1, 0) if split else ResizeRules(1 << 40, 1 << 39)
        resize_buckets_now(table, replace(rules, max_buckets=16))


@dataclass(frozen=True)
class OnSpark:
    """The lab on Spark. Services and writers that are killed are as without Spark, but compaction."""

    session: SparkSession

    def do(self, path: str, kind: Kind, step: Step) -> bool:
        if step.killed_at >= 0 or not step.writes or step.operation == "delete_partition":
            return InProcess().do(path, kind, step)
        try:
            with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
                warnings.simplefilter("ignore", PortabilityWarning)
                _make_if_missing(path, kind)
                source = self.session.read.option("datetimeRebaseMode", "CORRECTED")
                frame = source.parquet(_files(kind, step, folder))
                reader = "spark" if step.rows_per_frame == 1 else "auto"
                options = {**_options(kind, step), "serde_lab.source_reader": reader}
                with _undone(path, step):
                    write(frame, path, options)
        except Exception as exc:  # what Spark raises differs from cause to cause
            raise FailedError(_short(f"{type(exc).__name__}: {root_cause(str(exc))}")) from exc
        return not step.undone


@dataclass(frozen=True)
class ByHudi:
    """Apache Hudi on Spark; of services it does savepoints and restores, and compaction within the next
    write."""

    session: SparkSession

    def do(self, path: str, kind: Kind, step: Step) -> bool:
        if step.operation in ("savepoint", "restore"):
            self._serve(path, kind, step.operation)
        if not step.writes:
            return step.operation != "compact"
        asked = HudiWrite(
            record_type=kind.record_type,  # type: ignore[arg-type]
            log_block=step.blocks,  # type: ignore[arg-type]
            extra={"hoodie.parquet.bloom.filter.enabled": "false"},
        )
        options = write_options(kind.table(), asked)
        del options["hoodie.write.record.merge.mode"]
        options |= kind.rules.options
        options["hoodie.write.auto.upgrade"] = "false"
        if kind.by_class:
            # the class merges, and no implementation of a merge mode
            del options["hoodie.write.record.merge.custom.implementation.classes"]
        options["hoodie.datasource.write.operation"] = step.operation
        options["hoodie.write.set.null.for.missing.columns"] = "true"
        options[COMBINE] = str(step.operation.startswith("insert_overwrite")).lower()
        if step.operation == "delete_partition":
            options[PARTITIONS] = ",".join(step.partitions)
        try:
            with tempfile.TemporaryDirectory() as folder, conf_set(self.session, AS_STORED):
                frame = self.session.read.parquet(_files(kind, step, folder))
                frame.write.format("hudi").options(**options).mode("append").save(path)
        except Exception as exc:  # what Spark raises differs from cause to cause
            raise FailedError(_short(root_cause(str(exc)))) from exc
        return True

    def _serve(self, path: str, kind: Kind, operation: str) -> None:
        table = open_table(path)
        saved = savepoints.savepoints(table)
        if operation == "restore" and saved:
            call(self.session, path, kind.version, "rollback_to_savepoint")
        elif operation == "savepoint" and table.timeline().completed()[-1].time not in saved:
            call(self.session, path, kind.version, "create_savepoint")


def _rows(kind: Kind, step: Step) -> pa.Table:
    types = kind.schema(dict(step.columns))
    if step.operation == "delete":
        types = pa.schema(list(kind.identified_by.items()))
    return to_arrow(step.rows, types)


def _files(kind: Kind, step: Step, folder: str) -> str:
    table = _rows(kind, step)
    place = Path(folder) / "rows"
    place.mkdir()
    for number in range(step.files):
        part = table.take(pa.array(range(number, len(table), step.files), pa.int64()))
        pq.write_table(part, place / f"part-{number:05}.parquet")
    return str(place)


def _options(kind: Kind, step: Step) -> dict[str, str]:
    operation = "upsert" if step.operation == "partial" else step.operation
    options = {
        **lab_options(kind.table(), operation, step.strategy, step.blocks),
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.insert.shuffle.parallelism": "2",
        "hoodie.bulkinsert.shuffle.parallelism": "2",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.write.table.version": str(kind.version),
        "serde_lab.ordering_nulls": "lowest" if kind.nulls else "refuse",
        "hoodie.index.type": kind.table().index,
        **kind.rules.options,
    }
    if kind.index == "CONSISTENT_HASHING":
        options["hoodie.index.bucket.engine"] = kind.index
    if step.rows_per_frame >= 0:
        options["serde_lab.rows_per_frame"] = str(step.rows_per_frame)
    if step.execution:
        options["serde_lab.execution"] = step.execution
    if step.topology:
        options["serde_lab.topology"] = step.topology
    if step.topology == "step3":
        # a few rows fill a file group's buffer, and a few more the whole one
        options |= {"write.batch.size": "0.0005", "write.task.max.size": "0.001"}
    if step.operation == "partial":
        options["serde_lab.partial_updates"] = "true"
    elif step.brings_columns:
        options["hoodie.write.set.null.for.missing.columns"] = "true"
    if step.operation == "delete_partition":
        options[PARTITIONS] = ",".join(step.partitions)
    return options


def _short(said: str) -> str:
    return " ".join(said.split())[:400]
