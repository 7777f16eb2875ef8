"""Reads tables for the checks with the lab's own reader, where hudi-rs cannot read them.

It gives rows with meta columns, and the facts that the meta columns are compared with.
`tests/readers.toml` lists which reader can judge which feature.
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
    """The rows of the table at `path` as `serde_lab.read` returns them; a TableReader."""

    path: str
    name: str = "serde_lab"

    @property
    def schema(self) -> pa.Schema:
        """Meta columns, then data columns."""
        return self._plan().schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, one file slice at a time."""
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
