"""Base files: Parquet with the five meta columns first and index data in the footer.

Sources: HoodieRecord for the meta columns, HoodieAvroParquetWriter and HoodieRowParquetWriteSupport for
the footer's keys. `parquet.py` says how the columns are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.errors import TableError
from serde_lab.records.buffers import batches_of, binary_array, parquet_errors, rows_of
from serde_lab.records.conversion import conform
from serde_lab.records.schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_NAMES,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
)
from serde_lab.table.files.key_footer import SIMPLE, BloomBuilder, KeyRange
from serde_lab.table.files.parquet import (
    BaseFileFormat,
    check_calendar,
    columns_with_nan,
    parquet_file,
    parquet_options,
    without_bounds,
)
from serde_lab.table.storage.data_files import (
    CREATE,
    MERGE,
    BaseFileName,
    Writing,
    in_partition,
    place_data_file,
)
from serde_lab.table.storage.storage import Storage
from serde_lab.table.timeline.commit_metadata import NO_PREVIOUS_COMMIT, WriteStat

META_SCHEMA = pa.schema([pa.field(name, pa.string()) for name in META_NAMES])


def with_meta_columns(data: pa.Schema) -> pa.Schema:
    return pa.schema([*META_SCHEMA, *data])


def data_schema(stored: pa.Schema) -> pa.Schema:
    """The data columns of `stored`, without its meta columns."""
    # the operation is a sixth one, which only changelog writers add
    hidden = {*META_NAMES, OPERATION}
    return pa.schema([field for field in stored if field.name not in hidden])


BLOOM_KEY = "org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY = "hoodie_bloom_filter_type_code"
MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"
# Spark reads dates before 1582 and timestamps before 1900 unchanged only from files of Spark 3.1 and later;
# if a file names no version, Spark refuses or shifts them, depending on the session
# (DataSourceUtils#datetimeRebaseSpec). Hudi's own files of Spark's rows have the key too.
CALENDAR = {"org.apache.spark.version": "3.5.0"}

_LEAST_ROW_BYTES = 256
"""A row group has no more rows than if each had this many bytes."""
_BATCH_ROWS = 64 * 1024
CONSTANTS = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
"""The meta columns in which all rows of a write to one file have one value."""
_KEPT = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY)
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


class BaseFileWriter:
    """Writes one base file: `append` adds new rows, `append_carried` kept ones, `close` places the file.

    The file is built in memory and appears under its name only at `close`. `previous` is the path of the base
    file that this one replaces; None for a new file group.
    """

    def __init__(
        self,
        storage: Storage,
        writing: Writing,
        *,
        data_schema: pa.Schema,
        partition_path: str,
        file_id: str,
        previous: str | None = None,
        format: BaseFileFormat | None = None,
    ) -> None:
        name = BaseFileName(file_id, writing.write_token, writing.instant)
        self.path = in_partition(partition_path, str(name))
        self._storage, self._writing, self._name, self._previous = storage, writing, name, previous
        self._partition_path = partition_path
        self._data_schema = data_schema.remove_metadata()
        self._format = format or BaseFileFormat()
        self._row_group_rows = max(1, self._format.row_group_bytes // _LEAST_ROW_BYTES)
        self._seqno_prefix = f"{writing.instant}_{writing.task_partition}_"
        self._schema = with_constants(with_meta_columns(self._data_schema))
        self._carried_schema = pa.schema(
            [*(pa.field(n, pa.string()) for n in _KEPT), *self._data_schema]
        )
        self._out = pa.BufferOutputStream()
        self._parquet: Any = None
        self._with_nan: frozenset[str] = frozenset()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._keys: list[pa.Array] = []
        self._range = KeyRange()
        self._appended = self._carried = 0

    def append(self, record_keys: pa.Array, data: pa.RecordBatch) -> None:
        """Add rows that this instant writes, with their record keys."""
        rows = data.num_rows
        if not rows:
            return
        first = self._writing.rows_before + self._appended
        seqnos = sequence_numbers(self._seqno_prefix, first, rows)
        self._appended += rows
        self._add(record_keys, constant(self._name.instant, rows), seqnos, data)

    def append_carried(self, stored: pa.RecordBatch) -> None:
        """Add rows of an older base file unchanged: they keep commit time and sequence number.

        Of the meta columns, those in `BaseFileReader.carried_columns` are enough.
        """
        if not stored.num_rows:
            return
        stored = conform(stored, self._carried_schema, self._storage.describe(self.path))
        self._carried += stored.num_rows
        self._add(
            stored.column(2),
            stored.column(0).dictionary_encode(),
            stored.column(1),
            pa.RecordBatch.from_arrays(stored.columns[len(_KEPT) :], schema=self._data_schema),
        )

    def close(self, updates: int = 0, deletes: int = 0) -> WriteStat:
        """Place the file. `updates` of the appended rows replaced a stored one, and `deletes` stored rows are
        gone; both counts only go into the stat.

        Raises ConcurrentWrite if the instant was rolled back meanwhile.
        """
        self._flush()
        if self._parquet is None:
            self._open(self._schema.empty_table())
        self._parquet.add_key_value_metadata(self._footer())
        self._parquet.close()
        size = place_data_file(
            self._storage,
            self._writing,
            self._partition_path,
            self.path,
            CREATE if self._previous is None else MERGE,
            without_bounds(self._out.getvalue(), self._with_nan),
        )
        previous = None if self._previous is None else base_file_name(self._previous)
        return WriteStat(
            fileId=self._name.file_id,
            path=self.path,
            prevCommit=NO_PREVIOUS_COMMIT if previous is None else previous.instant,
            prevBaseFile=None if previous is None else str(previous),
            numWrites=self._appended + self._carried,
            numDeletes=deletes,
            numUpdateWrites=updates,
            numInserts=self._appended - updates,
            totalWriteBytes=size,
            fileSizeInBytes=size,
            partitionPath=self._partition_path,
        )

    def _add(
        self, keys: pa.Array, commit_times: pa.Array, seqnos: pa.Array, data: pa.RecordBatch
    ) -> None:
        rows = data.num_rows
        meta = [
            commit_times,
            seqnos,
            keys,
            constant(self._partition_path, rows),
            constant(str(self._name), rows),
        ]
        data = conform(data, self._data_schema, self._storage.describe(self.path))
        self._keys.append(keys)
        self._range.add(keys)
        self._waiting.append(
            pa.RecordBatch.from_arrays([*meta, *data.columns], schema=self._schema)
        )
        self._waiting_rows += rows
        self._waiting_bytes += data.nbytes
        enough = self._format.row_group_bytes
        if self._waiting_rows >= self._row_group_rows or self._waiting_bytes >= enough:
            self._flush()

    def _flush(self) -> None:
        """Write the waiting rows as row groups; collecting them first keeps small appends from making
        many."""
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting, self._schema).unify_dictionaries()
        self._with_nan |= columns_with_nan(rows)
        if self._parquet is None:
            self._open(rows)
        self._parquet.write_table(rows, row_group_size=self._row_group_rows)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def _open(self, rows: pa.Table) -> None:
        options = parquet_options(rows, self._format)
        self._parquet = pq.ParquetWriter(self._out, self._schema, **options)

    def _footer(self) -> dict[str, str]:
        bloom = BloomBuilder(self._appended + self._carried)
        if self._keys:
            bloom.add(pa.chunked_array(self._keys))
        footer = CALENDAR | {BLOOM_KEY: bloom.to_footer(), BLOOM_TYPE_KEY: SIMPLE}
        if self._range.least is not None and self._range.greatest is not None:
            footer |= {MIN_KEY: self._range.least, MAX_KEY: self._range.greatest}
        return footer


class BaseFileReader:
    """Reads one base file, memory-mapped if it is local.

    Raises TableError if it is not readable Parquet, if a page lacks its checksum's value, or if columns that
    are read may hold dates of Spark's legacy calendar.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._where = storage.describe(path)
        source = storage.open_input(path)
        with parquet_errors(self._where, TableError):
            self._file = parquet_file(source)

    @property
    def rows(self) -> int:
        return int(self._file.metadata.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """All columns as stored, meta columns first."""
        return self._file.schema_arrow

    @property
    def carried_columns(self) -> list[str]:
        """The columns that rows keep in the next base file, which sets the others again."""
        replaced = set(META_NAMES) - set(_KEPT)
        return [name for name in self.schema.names if name not in replaced]

    @property
    def physical_types(self) -> dict[str, str]:
        """The Parquet type of each column that is not nested."""
        schema = self._file.metadata.schema
        columns = [schema.column(i) for i in range(len(schema))]
        return {c.path: c.physical_type for c in columns if "." not in c.path}

    @property
    def footer(self) -> dict[str, str]:
        """The footer's key-values, without Arrow's schema."""
        found = self._file.metadata.metadata or {}
        return {
            key.decode(): value.decode(errors="replace")
            for key, value in found.items()
            if key != b"ARROW:schema"
        }

    def read_through(self) -> None:
        """Decode every page once. Raises TableError for one that cannot be, or a text that is not UTF-8."""
        with parquet_errors(self._where, TableError):
            for batch in batches_of(self._file, None, _BATCH_ROWS):
                batch.validate(full=True)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows in file order, with `columns` in that order (all of them if None)."""
        check_calendar(self._file.metadata, columns, self._where)
        with parquet_errors(self._where, TableError):
            table = rows_of(self._file, columns)
            return table if columns is None else table.select(list(columns))

    def batches(
        self, columns: Sequence[str] | None = None, rows: int = _BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows in file order, at most `rows` at a time."""
        names = None if columns is None else list(columns)
        check_calendar(self._file.metadata, names, self._where)
        with parquet_errors(self._where, TableError):
            yield from batches_of(self._file, names, rows)


def base_file_name(path: str) -> BaseFileName:
    """The parsed name in a base file's path. Raises TableError if it is not a base file's name."""
    found = BaseFileName.parse(path.rpartition("/")[2])
    if found is None:
        raise TableError(f"{path}: is not a base file's name")
    return found


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """One value for all rows, dictionary-encoded at 4 bytes a row."""
    indices = pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def with_constants(stored: pa.Schema) -> pa.Schema:
    """The schema of stored rows, in which `constant` fills the meta columns with one value in a write."""
    return pa.schema([f.with_type(_DICTIONARY) if f.name in CONSTANTS else f for f in stored])


_DIGITS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), "V4")


def sequence_numbers(prefix: str, first: int, rows: int) -> pa.StringArray:
    """`prefix` followed by each number from `first` on; at least one row.

    Numbers that share all digits but the last four are copied from a table, in a quarter of the time that
    Arrow takes to write and join them.
    """
    parts = []
    start, stop = first, first + rows
    while start < stop:
        high, low = divmod(start, len(_DIGITS))
        count = min(stop - start, len(_DIGITS) - low)
        if high:
            head = f"{prefix}{high}".encode()
            texts = np.empty(count, [("head", f"V{len(head)}"), ("digits", "V4")])
            texts["head"] = np.void(head)
            texts["digits"] = _DIGITS[low : low + count]
            ends = texts.itemsize * np.arange(count + 1, dtype=np.int64)
            parts.append(binary_array(ends, texts).view(pa.string()))
        else:
            numbers = pa.array(np.arange(start, start + count)).cast(pa.string())
            parts.append(pc.binary_join_element_wise(prefix, numbers, ""))
        start += count
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
