"""The lab's own reader as a judge, for tables that hudi-rs cannot read.

Owns the shape of it: rows with meta columns, and the facts that meta columns are held to. Which tables
it judges follows from `tests/readers.toml`. Must not know what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from serde_lab.table.read_plan import ReadPlan, plan_snapshot
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from serde_lab.verify.readers import TableFacts


@dataclass(frozen=True)
class OwnReader:
    """The rows of the table at `path` as `serde_lab.read` sees them; a TableReader."""

    path: str
    name: str = "serde_lab"

    @property
    def schema(self) -> pa.Schema:
        """Meta columns, then data columns."""
        return self._plan().schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, a file slice at a time."""
        plan = self._plan()
        for found in plan.slices:
            yield from plan.batches(found)

    def facts(self) -> TableFacts:
        """What `HudiRs.facts` says, by our own listing."""
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
