"""Reads tables with the lab's own reader: for checks without hudi-rs, and for upsert_prepped.

`tests/readers.toml` lists which reader can judge which feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from serde_lab.errors import LabError
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.table.files.base_file import FILE_NAME
from serde_lab.table.read_plan import ReadPlan, plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.readers import TableFacts

_ROW = "_row"


@dataclass(frozen=True)
class OwnReader:
    """The rows of the table at `path` as `serde_lab.read` returns them; a TableReader."""

    path: str
    name: str = "serde_lab"

    @property
    def schema(self) -> pa.Schema:
        """Meta columns, then data columns."""
        return self._plan().schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        plan = self._plan()
        for found in plan.slices:
            yield from plan.batches(found)

    def facts(self) -> TableFacts:
        """The same facts as `HudiRs.facts`, from the lab's own listing."""
        table = self._table()
        names: dict[str, set[str]] = {}
        for found in table.view().latest_file_slices():
            allowed = names.setdefault(found.partition_path, set())
            if found.base_file is not None:
                allowed.add(found.base_file.path.rpartition("/")[2])
            if found.log_files:
                allowed.add(found.file_id)
        instants = tuple(instant.time for instant in table.timeline().completed())
        files = {path: frozenset(allowed) for path, allowed in names.items()}
        return TableFacts(files, instants)

    def _plan(self) -> ReadPlan:
        return plan_snapshot(self._table())

    def _table(self) -> HoodieTable:
        return HoodieTable.open(Storage.open(self.path))


def located(commit: CommitInput, table: Path, key: Sequence[str], folder: Path) -> CommitInput:
    """`commit` with its rows copied into `folder`, each with the name of the file that stores its key.

    A user of upsert_prepped reads the table before the write. The lab does so before each cell's clock
    starts, since file names differ from table to table. `key`: the columns that identify a stored row,
    including those of the partition. Raises LabError for rows that are not stored.
    """
    batches = (batch.select([*key, FILE_NAME]) for batch in OwnReader(str(table)).batches())
    stored = pa.Table.from_batches(batches)
    folder.mkdir(parents=True)
    files = []
    for file in commit.files:
        rows = pq.read_table(file)
        numbered = rows.select(key).append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
        joined = numbered.join(stored, list(key), join_type="inner").sort_by(_ROW)
        if len(joined) != len(rows):
            raise LabError(
                f"{commit.name}: {len(rows) - len(joined):,} of {len(rows):,} rows of {file.name} are not"
                " in the table; an upsert_prepped updates stored rows only"
            )
        names = joined.column(FILE_NAME).combine_chunks().cast(pa.string())
        files.append(folder / file.name)
        pq.write_table(rows.append_column(FILE_NAME, names), files[-1])
    return replace(commit, folder=folder, files=tuple(files))
