"""Every operation by every path, strategy, table type and version: DuckDB, hudi-rs and the doctor agree.

`write_paths` has the cover. `pairwise_cells` is what runs here; `all_cells` under other seeds is the same
test with more of them.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from serde_lab.table.storage.storage import Storage
from serde_lab.table.validation import Severity, validate_table
from tests.pipeline.write_paths import Cell, Course, all_cells, pairs, pairwise_cells

pytestmark = pytest.mark.slow

CELLS = pairwise_cells()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_every_operation_by_every_path(cell: Cell, tmp_path: Path) -> None:
    course = Course(cell, tmp_path)
    half = len(course.order) // 2
    for number, _ in enumerate(course.operations()):
        if number == half:
            course.table.check()
    course.table.check()
    diagnosis = validate_table(Storage.open(course.table.path), deep=True)
    assert not [f for f in diagnosis.findings if f.severity is not Severity.NOTE]


def test_every_pair_of_values_meets() -> None:
    possible = {pair for cell in all_cells() for pair in pairs(cell)}
    assert {pair for cell in CELLS for pair in pairs(cell)} == possible
    made = set(itertools.chain.from_iterable(cell.operations for cell in CELLS))
    assert len(made) == 9
