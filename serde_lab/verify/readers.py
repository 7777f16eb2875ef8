"""Reads finished tables with readers that did not write them: hudi-rs, and an interface for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast, runtime_checkable

import hudi
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import LocalStore, from_url

from serde_lab.errors import TableError
from serde_lab.verify.contents import RowSource

_ROWS_PER_BATCH = 65_536
"""Rows per batch streamed by hudi-rs; its default of 1,024 makes every check slower."""

_PROPERTIES = "hoodie.properties"


@runtime_checkable
class TableReader(RowSource, Protocol):
    """A table's rows with their meta columns, as one reader sees them; `name` is for messages."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts in a table's storage that its rows' meta columns must agree with.

    `files`: per partition path, the valid file names of rows: the base file of each latest file slice, and
    the file id of each slice with log files (rows in logs have only that). `instants`: times of the completed
    writes on the active timeline; if `archived`, older ones may have been archived.
    """

    files: Mapping[str, frozenset[str]]
    instants: tuple[str, ...]
    archived: bool = False


@dataclass(frozen=True, slots=True)
class PlainParquet:
    """The rows of a folder of Parquet files, without a table format, as pyarrow reads them."""

    folder: Path

    @property
    def schema(self) -> pa.Schema:
        """That of the first file."""
        return pq.read_schema(self.files()[0]).remove_metadata()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        for file in self.files():
            with pq.ParquetFile(file) as source:
                yield from source.iter_batches()

    def files(self) -> list[Path]:
        """The files, by name. Raises TableError if there is none."""
        found = sorted(self.folder.glob("*.parquet"))
        if not found:
            raise TableError(f"{self.folder}: has no Parquet file")
        return found


@dataclass(frozen=True)
class HudiRs:
    """The snapshot of a table as hudi-rs reads it; with `as_of`, the snapshot at that instant.

    `path` is a folder or a URL; `options` are those of hudi-rs and of the storage. Every method raises
    TableError, with the text of hudi-rs, if hudi-rs cannot read.
    """

    path: str
    as_of: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "hudi-rs"

    @property
    def schema(self) -> pa.Schema:
        """Meta columns, then data columns."""
        with _hudi_errors(self.path):
            return self._table().get_schema_with_meta_fields()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, one file slice at a time; slices without log files are streamed."""
        with _hudi_errors(self.path):
            table, options = self._table(), self._options()
            reader = table.create_file_group_reader_with_options(options)
            for piece in table.get_file_slices(options):
                if piece.has_log_files():
                    yield reader.read_file_slice(piece, options)
                else:
                    yield from reader.read_file_slice_stream(piece, options)

    def table(self) -> pa.Table:
        """All rows in memory."""
        batches = list(self.batches())
        return pa.Table.from_batches(batches) if batches else self.schema.empty_table()

    def changes(self, start: str, end: str = "") -> pa.Table:
        """Rows changed in (start, end]. On versions 8 and 9 the bounds are completion times."""
        with _hudi_errors(self.path):
            table = self._table()
            options = hudi.HudiReadOptions().with_query_type(hudi.HudiQueryType.Incremental)
            options = options.with_start_timestamp(start)
            batches = table.read(options.with_end_timestamp(end) if end else options)
            schema = table.get_schema_with_meta_fields()
        return pa.Table.from_batches(batches) if batches else schema.empty_table()

    def facts(self) -> TableFacts:
        """Files and instants, as hudi-rs lists them."""
        with _hudi_errors(self.path):
            table = self._table()
            names: dict[str, set[str]] = {}
            for piece in table.get_file_slices(self._options()):
                allowed = names.setdefault(piece.partition_path, set())
                if piece.base_file_name:
                    allowed.add(piece.base_file_name)
                if piece.has_log_files():
                    allowed.add(piece.file_id)
            timeline = table.get_timeline()
            done = [
                *timeline.get_completed_commits(),
                *timeline.get_completed_deltacommits(),
                *timeline.get_completed_replacecommits(),
            ]
        instants = tuple(sorted({instant.timestamp for instant in done}))
        files = {path: frozenset(found) for path, found in names.items()}
        return TableFacts(files, instants, self.has_archive())

    def has_archive(self) -> bool:
        """Whether instants were archived: hudi-rs reads only the active timeline."""
        if "://" in self.path:
            own = {k: v for k, v in self.options.items() if not k.startswith("hoodie.")}
            plain_http = own.pop("aws_allow_http", "false") == "true"
            client = {"allow_http": plain_http}
            store = from_url(self.path, config=cast(Any, own), client_options=cast(Any, client))
        else:
            store = LocalStore(self.path)
        return any(
            item["path"].endswith(".parquet") or ".archive" in item["path"]
            for folder in (".hoodie/timeline/history", ".hoodie/archived")
            for item in obstore.list_with_delimiter(store, folder)["objects"]
        )

    def _table(self) -> Any:
        return hudi.HudiTable(self.path, dict(self.options))

    def _options(self) -> Any:
        options = hudi.HudiReadOptions().with_batch_size(_ROWS_PER_BATCH)
        return options.with_as_of_timestamp(self.as_of) if self.as_of else options


@contextmanager
def without_kinds(table: Path, partition_fields: Sequence[str]) -> Iterator[Path]:
    """A temporary folder of links to `table`, whose properties name the partition fields without their kinds.

    hudi-rs takes a field that the key generator CUSTOM states with its kind, such as p:SIMPLE, for a column.
    """
    with TemporaryDirectory(prefix="serde-lab-hudi-rs-") as folder:
        view, meta = Path(folder), Path(folder, ".hoodie")
        meta.mkdir()
        for entry in (*table.iterdir(), *(table / ".hoodie").iterdir()):
            if entry.name not in (".hoodie", _PROPERTIES):
                (view / entry.relative_to(table)).symlink_to(entry.absolute())
        stated = (table / ".hoodie" / _PROPERTIES).read_text()
        # of two lines with one key the last counts
        anew = f"{stated}\nhoodie.table.partition.fields={','.join(partition_fields)}\n"
        (meta / _PROPERTIES).write_text(anew)
        yield view


@contextmanager
def _hudi_errors(path: str) -> Iterator[None]:
    """Turn the errors of hudi-rs, which no module exports, into TableError; they include Rust panics."""
    try:
        yield
    except BaseException as exc:
        if type(exc).__name__ not in ("HudiCoreError", "PanicException"):
            raise
        reason = (str(exc).strip().splitlines() or ["nothing"])[0]
        raise TableError(f"hudi-rs cannot read {path}: {reason}") from exc
