"""A finished table with one thing wrong in it is caught by the checks of its cell, in words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from serde_lab.lab.cells.cell import CellResult
from serde_lab.lab.cells.table_cells import InProcess, TableCells
from serde_lab.lab.checks.cell_checks import CellChecks
from serde_lab.lab.inputs.prepared import prepare_inputs
from serde_lab.table.storage.storage import Storage
from serde_lab.table.table import HoodieTable
from tests.lab.small_scenario import scenario, source


@dataclass(frozen=True)
class Finished:
    """A cell that passed all checks, and the batches that its table was made from."""

    checks: CellChecks
    result: CellResult
    cells: TableCells

    @property
    def before(self) -> pa.Table:
        return pq.read_table(self.cells.inputs.setups[0].folder)

    def judged(self, table: Path) -> dict[str, str]:
        """The names and the details of the checks that fail for `table`."""
        arm = self.cells.scenario.arms[0]
        verdict = self.checks.judge(arm, replace(self.result, table=table))
        return {check.name: check.detail for check in verdict.results if not check.passed}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    tmp = tmp_path_factory.mktemp("damaged")
    asked = scenario(source(tmp / "own"), ["internal_row"])
    inputs = prepare_inputs(asked, tmp / "cache")
    cells = TableCells(asked, inputs, tmp / "work", InProcess())
    cells.set_up()
    result = cells.cell("cell", asked.arms[0]).measure()
    return Finished(CellChecks(asked, inputs, tmp / "work"), result, cells)


@pytest.fixture
def damage(finished: Finished, tmp_path: Path) -> Callable[[Callable[[pa.Table], pa.Table]], Path]:
    """Copies the table and changes the rows of its first base file."""

    def change(rows: Callable[[pa.Table], pa.Table]) -> Path:
        assert finished.result.table is not None
        table = tmp_path / "table"
        shutil.copytree(finished.result.table, table)
        latest = HoodieTable.open(Storage.open(table)).view().latest_base_files()
        file = table / min(found.path for found in latest)
        before = pq.read_table(file)
        after = rows(before)
        assert after.schema == before.schema
        assert not after.equals(before)
        pq.write_table(after, file)
        return table

    return change


def with_value(table: pa.Table, row: int, column: str, value: object) -> pa.Table:
    at = table.schema.get_field_index(column)
    mask = pa.array([i == row for i in range(len(table))])
    typed = pa.scalar(value, table.schema.field(column).type)
    changed = pc.if_else(mask, typed, table.column(column))
    return table.set_column(at, table.schema.field(column), changed)


def test_a_whole_table_passes(finished: Finished) -> None:
    assert finished.result.table is not None
    assert finished.judged(finished.result.table) == {}


def test_one_value(
    finished: Finished, damage: Callable[[Callable[[pa.Table], pa.Table]], Path]
) -> None:
    found: dict[str, object] = {}

    def change(rows: pa.Table) -> pa.Table:
        found["id"] = rows.column("id")[7].as_py()
        return with_value(rows, 7, "amount", 1e-9)

    words = finished.judged(damage(change))["rows_match_oracle"]
    assert str(found["id"]) in words
    assert "amount" in words
    assert "1e-09" in words


@pytest.mark.parametrize("row", [0, -1])
def test_one_row_missing(
    row: int, finished: Finished, damage: Callable[[Callable[[pa.Table], pa.Table]], Path]
) -> None:
    found: dict[str, object] = {}

    def change(rows: pa.Table) -> pa.Table:
        found["id"] = rows.column("id")[row].as_py()
        return rows.slice(1) if row == 0 else rows.slice(0, len(rows) - 1)

    words = finished.judged(damage(change))["rows_match_oracle"]
    assert str(found["id"]) in words


def test_one_row_too_many(
    finished: Finished, damage: Callable[[Callable[[pa.Table], pa.Table]], Path]
) -> None:
    failed = finished.judged(damage(lambda rows: pa.concat_tables([rows, rows.slice(3, 1)])))
    assert {"rows_match_oracle", "no_duplicate_keys"} <= failed.keys()


def test_one_ordering_decision(
    finished: Finished, damage: Callable[[Callable[[pa.Table], pa.Table]], Path]
) -> None:
    """The row that was stored before stands where a newer one had won."""
    before = finished.before
    found: dict[str, object] = {}

    def change(rows: pa.Table) -> pa.Table:
        old = dict(zip(before["id"].to_pylist(), before["event_ts"].to_pylist(), strict=True))
        pairs = zip(rows["id"].to_pylist(), rows["event_ts"].to_pylist(), strict=True)
        row, key = next((i, k) for i, (k, ts) in enumerate(pairs) if k in old and ts > old[k])
        stored = before.filter(pc.equal(before["id"], key)).to_pylist()[0]
        found["id"] = key
        for name, value in stored.items():
            rows = with_value(rows, row, name, value)
        return rows

    words = finished.judged(damage(change))["rows_match_oracle"]
    assert str(found["id"]) in words


def test_a_table_that_cannot_be_read(finished: Finished, tmp_path: Path) -> None:
    assert {"rows_match_oracle", "no_duplicate_keys", "meta_columns"} <= finished.judged(
        tmp_path / "nowhere"
    ).keys()
